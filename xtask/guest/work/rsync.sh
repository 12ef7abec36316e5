# rsync -a twice: the second copies nothing, also asked with a cold cache; the copy is like the original.
rsync -a /root/tree $WORK
forget
expect "copied again" "" "$(rsync -a --itemize-changes /root/tree $WORK)"
same_tree /root/tree $WORK/tree
rm -rf $WORK/tree
