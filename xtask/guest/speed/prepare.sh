# The guest gets Landfast's command and the archives from its disk, and a kernel that can hold packets back.
cd /root
tar -xf $ARCHIVE
modprobe sch_netem
modprobe fuse || [ -e /dev/fuse ]
if [ "$SERVER" = 127.0.0.1 ]; then # it is its own server: its disk has what every client must leave there
    for archive in tree-*.tar; do
        mkdir "reference-${archive%.tar}"
        tar -C "reference-${archive%.tar}" -xf "$archive"
    done
fi
