"""The command line: a verb a file, which parses, calls and prints."""
