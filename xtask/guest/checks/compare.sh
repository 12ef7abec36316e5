# What is read back from the server is what the archive holds.
forget
same_tree $REFERENCE $WORK/tree
