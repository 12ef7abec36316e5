# git's creates, renames, links and locks: init, add, commit, gc, clone, fsck; the work tree is clean from a cold cache.
mkdir $WORK/git
cd $WORK/git
git init -q .
first_files 60 | (cd $REFERENCE && xargs -d '\n' cp --parents -t $WORK/git)
git add .
git commit -q -m one
first_files 20 | while read -r name; do echo more >>"$name"; done
git commit -q -a -m two
forget
expect "git status" "" "$(git status --porcelain)"
git fsck --full --strict
git gc -q
git fsck --full --strict
git clone -q . ../clone
expect "commits in the clone" 2 "$(git -C ../clone rev-list --count HEAD)"
expect "difference" "" "$(diff -r --exclude=.git . ../clone)"
cd /
rm -rf $WORK/git $WORK/clone
