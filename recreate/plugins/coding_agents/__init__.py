"""Claude Code, Codex, OpenCode, mini-swe-agent or any command as the optimizer, in the folder of
the plug-in workbench."""

NEEDS = ("foreign", "workbench")
