# Every line of both clients is there, once and whole.
for client in one two; do
    for line in $(seq 0 39); do echo "$client $line $(printf '%*s' $((line % 50)) '' | tr ' ' x)"; done
done | LC_ALL=C sort >/tmp/wanted
forget
for name in flock fcntl; do
    LC_ALL=C sort $WORK/append/$name | diff /tmp/wanted - || die "lines under $name"
done
rm -r $WORK/append
