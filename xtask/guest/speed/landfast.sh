# Runs `work`, which is one of Landfast's commands, and prints how long it took in microseconds, from the start of its process to its
# end, and what it said of itself.
URL=nfs://$SERVER:$PORT
start=${EPOCHREALTIME/./}
work 2>/run/told || { cat /run/told; die "landfast: exit code $?"; }
end=${EPOCHREALTIME/./}
echo "@took $((end - start))"
echo @told
cat /run/told
