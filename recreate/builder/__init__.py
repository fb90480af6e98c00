"""The loop: attempt, propose, judge, again; and build, run, bench as a library."""
