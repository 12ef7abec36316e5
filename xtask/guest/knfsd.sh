# Makes the guest its own NFS server, the kernel's, on an ext4 filesystem, with a lease of LEASE seconds: the peer for comparisons.
set -euo pipefail
modprobe -a loop nfsd
mkdir -p /srv/export
truncate -s 1200M /root/export.img
mkfs.ext4 -q /root/export.img
mount -o loop /root/export.img /srv/export
mount -t nfsd nfsd /proc/fs/nfsd 2>/dev/null || true
echo "${LEASE:-15}" >/proc/fs/nfsd/nfsv4leasetime
echo 15 >/proc/fs/nfsd/nfsv4gracetime
echo '/srv/export *(rw,insecure,no_root_squash,no_subtree_check,sync,fsid=0)' >/etc/exports
