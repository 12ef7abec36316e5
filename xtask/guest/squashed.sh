# A part of the export as an export of its own, in which root is nobody.
set -euo pipefail
mkdir -m 1777 /srv/export/squashed
# A version 4 client goes into another export only where something is mounted.
mount --bind /srv/export/squashed /srv/export/squashed
exportfs -o rw,insecure,root_squash,no_subtree_check,sync,fsid=1 '*:/srv/export/squashed'
