"""python -m recreate"""

from recreate.cli import main

main()
