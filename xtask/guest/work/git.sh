# git clone, commit, gc; fsck finds nothing, the work tree is clean from a cold cache.
git clone -q --no-local /root/repository $WORK/clone
cd $WORK/clone
expect "commits" 2 "$(git rev-list --count HEAD)"
find . -name '*.h' | LC_ALL=C sort | head -n 20 | while read -r name; do echo '/* more */' >>"$name"; done
git commit -q -a -m three
git fsck --full --strict
git gc -q
forget
git fsck --full --strict
expect "git status" "" "$(git status --porcelain)"
git checkout -q HEAD~1
diff -r --exclude=.git /root/repository .
cd /
rm -rf $WORK/clone
