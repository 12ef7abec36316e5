# The suites' programs and settings, from the disk; the users that pjdfstest acts as; another filesystem for EXDEV.
set -euo pipefail
mkdir -p /root/suite /run/second
tar -C /root/suite -xf /dev/vdb
mount -t tmpfs tmpfs /run/second
groupadd tests
useradd --gid tests --no-create-home tests
