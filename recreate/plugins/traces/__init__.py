"""What agents did under other tools, as experience.

One file a format, found as a part of the kind `traces`:

    files -> documents (JSON values with their place) -> a format reads trajectories -> experiences
    -> memory

`readers` opens files, `format` has the records and the port, `messages` turns a conversation into
steps, `overlap` finds out which task of ours it is, `importer` does the whole. Grades that come
later are `recreate.plugins.traces.ungraded`.
"""
