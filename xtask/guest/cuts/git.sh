# A clone of a bare repository on the guest's own disk.
mkdir $WORK/git
git clone -q --no-local /kit/repository $WORK/git/clone
