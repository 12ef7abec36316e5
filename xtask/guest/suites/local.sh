# A local ext4 in place of the export: what the suites find there is Linux's own behaviour.
set -euo pipefail
modprobe loop
truncate -s 1200M /root/local.img
mkfs.ext4 -q /root/local.img
mount -o loop /root/local.img /mnt/nfs
