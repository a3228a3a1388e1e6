"""Starting, ending and watching processes of our own. Knows no cluster."""
