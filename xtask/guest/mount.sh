# The guest gets `landfast` from its disk DEVICE, and what it needs to mount.
mkdir -p /root/bin
tar -C /root/bin --strip-components=1 -xf "$DEVICE"
[ -x /root/bin/landfast ] || mv /root/bin/* /root/bin/landfast
modprobe fuse || [ -e /dev/fuse ]
