"""What a text that an agent is to carry may hold.

leaks.py      nothing that belongs to one task: its ids, names, words, answers, canaries
readings.py   how else a text can be read: decoded, backwards, put together
names.py      what is a name or a quotation, and what is nobody's, with three lists of names
gaming.py     nothing that games a grader; and what attempts show of that
untrusted.py  words that are not ours say so before they say anything else
"""
