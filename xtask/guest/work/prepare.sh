# What the work works on, on the guest's own disk: a tree, a repository, a C project, a file with holes. WORKS are those that
# will be done (all, if there are none): the first two take as long to make as to use.
rm -rf $REFERENCE /root/tree /root/repository /root/project
wanted() { # wanted WORK...: whether one of these will be done
    [ -n "$WORKS" ] || return 0
    local work
    for work; do
        case " $WORKS " in *" $work "*) return 0 ;; esac
    done
    return 1
}

if wanted git rsync; then
    mkdir -p $REFERENCE /root/tree
    tar -C $REFERENCE -xf $ARCHIVE
    first_files 250 | (cd $REFERENCE && xargs -d '\n' cp -a --parents -t /root/tree)
    rm -rf $REFERENCE
fi

if wanted git; then
    mkdir -p /root/repository
    cp -a /root/tree/. /root/repository
    cd /root/repository
    git init -q .
    git add .
    git commit -q -m one
    find . -name '*.c' | LC_ALL=C sort | head -n 20 | while read -r name; do echo '/* more */' >>"$name"; done
    git commit -q -a -m two
fi

# 48 sources in 6 directories. Each includes a header of its directory and one of all; m calls all of them.
mkdir /root/project
cd /root/project
echo '#define BASE 7' >base.h
calls='' declarations=''
for dir in a b c d e f; do
    mkdir $dir
    printf '#include "../base.h"\n#define %s (BASE + %d)\n' "${dir^}" "'$dir" >$dir/dir.h
    for n in 1 2 3 4 5 6 7 8; do
        printf '#include "dir.h"\nint %s%d(int x) { int s = 0, i; for (i = 0; i < x; i++) s += i * %s + %d; return s; }\n' \
            $dir $n "${dir^}" $n >$dir/$n.c
        calls+=" + $dir$n(10)" declarations+="int $dir$n(int); "
    done
done
printf '#include <stdio.h>\n%s\nint main(void) { printf("%%d\\n", 0%s); return 0; }\n' "$declarations" "$calls" >main.c
cat >Makefile <<'M'
sources := main.c $(wildcard ?/*.c)
libraries := $(foreach dir,a b c d e f,$(dir)/lib.a)
program: main.o $(libraries)
	tcc -o $@ $^
define library
$(1)/lib.a: $(patsubst %.c,%.o,$(wildcard $(1)/*.c))
	tcc -ar rcs $$@ $$^
endef
$(foreach dir,a b c d e f,$(eval $(call library,$(dir))))
%.o: %.c
	@echo $@ >>compiled
	tcc -c -MD -MF $*.d -o $@ $<
-include $(sources:.c=.d)
M

truncate -s 20M /root/sparse
for at in 0 1048576 7000001 12345678 20971519; do
    printf 'here' | head -c $((20971520 - at)) | dd of=/root/sparse bs=1 seek=$at conv=notrunc status=none
done
touch -d '2011-12-13 14:15:16.171819202 UTC' /root/sparse
