# What the works work on, where every user of the guest may read it: from the guest's disk, and the C project of `work/prepare.sh`.
mkdir /kit
tar -C /kit -xf $ARCHIVE
tar -C /kit -xf /kit/many.tar
mv /root/project /kit
chmod -R a+rX /kit/project
git config --system safe.directory '*' # git refuses a repository of another owner
mkdir -p /mnt/second
