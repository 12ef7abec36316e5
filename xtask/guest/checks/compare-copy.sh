# The copy is like the original.
forget
same_tree $REFERENCE $WORK/copy
