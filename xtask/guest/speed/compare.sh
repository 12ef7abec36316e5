# What both have said of the tree is the same, but for what they call it.
for what in list usage; do
    sed 's|nfs://[^ ]*/tree-of-landfast/tree|tree|' "/run/$what-landfast" | diff - "/run/$what-kernel" >/tmp/differences ||
        { head -20 /tmp/differences; die "$what: what landfast (<) and the mount (>) say is not the same"; }
done
