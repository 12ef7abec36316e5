# First client: sees all of it, and what it writes itself comes after.
for n in 1 2; do
    echo go >/run/landfast/held-go-$n
    read -r _ </run/landfast/held-done-$n
done
forget
for n in 1 2; do
    cd $WORK/held-$n
    expect appended "$(printf 'first appended\nsecond')" "$(cat appended)"
    expect opened "$(printf 'first opened\nthird')" "$(cat opened)"
    expect opened 640 "$(stat -c %a opened)"
    expect renamed 'first renamed' "$(cat renamed-2)"
    [ ! -e renamed ] || die "the old name is still there"
    expect replaced 'second replaced' "$(cat replaced)"
    [ ! -e removed ] || die "a removed file is still there"
    expect moded 600 "$(stat -c %a moded)"
    expect shortened first "$(cat shortened)"
    expect linked 2 "$(stat -c %h linked)"
    expect timed "$(printf 'first timed\nsecond')" "$(cat timed)"
done
cd /
