# make -j: everything once; then nothing; then only what depends on a changed header.
cp -a /root/project $WORK/project
cd $WORK/project
make -s -j 4
expect "compiled at first" 49 "$(wc -l <compiled)"
expect "the program's answer" 232200 "$(./program)"
make -q || die "make would build again what is built"
forget
make -q || die "make would build again what is built, asked with a cold cache"
rm compiled
touch c/dir.h
make -s -j 4
expect "compiled after a header was touched" "$(printf 'c/%d.o\n' 1 2 3 4 5 6 7 8)" "$(sort compiled)"
cd /
rm -rf $WORK/project
