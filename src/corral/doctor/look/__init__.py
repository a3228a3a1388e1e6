"""Finds facts about one part each; judges nothing and keeps nothing open."""
