# ACLs: read, set, applied and inherited, as NFSv4's lists; on NFSv3 as POSIX has them, by NFSACL.
mkdir -m 755 $WORK/acl
cd $WORK/acl
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
if [ "$VERS" = 3 ]; then
    list() { getfacl --omit-header --numeric "$@" | grep . | tr '\n' ' '; }
    echo data >file
    chmod 640 file
    forget
    expect "the mode as a list" "user::rw- group::r-- other::--- " "$(list file)"
    setfacl -m u:1001:rw,g:77:r file
    forget
    expect "the list" "user::rw- user:1001:rw- group::r-- group:77:r-- mask::rw- other::--- " "$(list file)"
    expect "mode after the list" 660 "$(stat -c %a file)"
    as 1001 sh -c 'echo more >>file'
    refused as 1002 cat file
    refused as 1001 setfacl -m u:1002:r file
    chmod 600 file # takes away what the list gave
    forget
    refused as 1001 cat file
    setfacl -b file
    expect "the list's end" "user::rw- group::--- other::--- " "$(list file)"
    mkdir dir
    setfacl -d -m u:1001:rwx,o::- dir
    forget
    expect "to be inherited" "user::rwx user:1001:rwx group::r-x mask::rwx other::--- " "$(list -d dir)"
    echo x >dir/file
    mkdir dir/sub
    forget
    expect "inherited by a file" "user::rw- user:1001:rwx #effective:rw- group::r-x #effective:r-- mask::rw- other::--- " \
        "$(list dir/file | tr -s '\t ' ' ')"
    expect "inherited by a directory" "$(list -d dir)" "$(list -d dir/sub)"
    expect "read by whom it was given to" x "$(as 1001 cat dir/file)"
    refused as 1002 cat dir/file
    setfacl -k dir
    forget
    expect "nothing more to inherit" "" "$(list -d dir)"
    cd /
    rm -rf $WORK/acl
    exit 0
fi
hex() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }
ace() { # ace TYPE FLAGS MASK WHO: an entry as the wire has it
    local pad=$(((4 - ${#4} % 4) % 4))
    printf '%08x%08x%08x%08x%s' "$1" "$2" "$3" ${#4} "$(hex "$4")"
    [ $pad = 0 ] || printf '%0*d' $((pad * 2)) 0
}
acl() { getfattr --absolute-names -e hex --only-values -n system.nfs4_acl "$1" | od -An -v -tx1 | tr -d ' \n'; }
set_acl() { setfattr -n system.nfs4_acl -v "0x$1" "$2"; }
R=0x1 W=0x6 X=0x20 DW=0x46
echo data >file
chmod 640 file
# What was read can be set and changes nothing.
before=$(acl file)
set_acl "$before" file
forget
expect "the same list" "$before" "$(acl file)"
expect mode 640 "$(stat -c %a file)"
set_acl "00000003$(ace 0 0 $((R | W)) OWNER@)$(ace 0 0 $((R | W)) 1001)$(ace 0 0 $R GROUP@)" file
forget
expect "mode after the list" 660 "$(stat -c %a file)"
as 1001 sh -c 'echo more >>file'
refused as 1002 cat file
expect "content" "data more" "$(echo $(cat file))"
refused as 1001 setfattr -n system.nfs4_acl -v "0x$before" file
# A mode set afterwards takes away what the list gave.
chmod 600 file
forget
refused as 1001 cat file
# What is not to be had is refused.
refused set_acl "00000001$(ace 2 0 $R OWNER@)" file
refused set_acl "00000001$(ace 0 0 $R joe@example.org)" file
# Entries to be inherited: before NFSv4.2 the client takes the umask off itself.
mkdir -m 755 dir
all=$((R | DW | X))
set_acl "00000004$(ace 0 3 $all OWNER@)$(ace 0 11 $all 1001)$(ace 0 0 $((R | X)) GROUP@)$(ace 0 0 $((R | X)) EVERYONE@)" dir
forget
expect "mode of the directory" 755 "$(stat -c %a dir)"
(umask 077 && echo x >dir/file && mkdir dir/sub)
forget
case $VERS in
    4.2) expect "inherited modes" "660 770" "$(echo $(stat -c %a dir/file dir/sub))"
         expect "read by whom it was given to" x "$(as 1001 cat dir/file)" ;;
    *) expect "inherited modes" "600 700" "$(echo $(stat -c %a dir/file dir/sub))" ;;
esac
refused as 1002 cat dir/file
cd /
rm -rf $WORK/acl
