"""A live panel below the lines of a run on a terminal: what runs, time left, money."""
