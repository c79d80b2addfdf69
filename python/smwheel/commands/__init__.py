"""The commands, a module for each: `command` is the click command. They are imported when they are called."""
