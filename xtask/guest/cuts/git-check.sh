# On a mount that has seen nothing: the repository is whole, the work tree is what was committed.
git -C $WORK/git/clone fsck --full --strict
expect "git status" "" "$(git -C $WORK/git/clone status --porcelain)"
expect "commits" 1 "$(git -C $WORK/git/clone rev-list --count HEAD)"
mkdir /run/landfast/tree
tar -C /run/landfast/tree -xf /kit/many.tar
diff --recursive --brief --exclude=.git /run/landfast/tree/tree $WORK/git/clone
rm -r /run/landfast/tree
