# What everything below the directory AT has: type, mode, owner, time, size; then the check sums of the files.
cd "$AT"
find . -mindepth 1 -printf '%P\t%y\t%m\t%U:%G\t%T@\t%s\n'
echo @sums
find . -type f -exec cksum {} +
