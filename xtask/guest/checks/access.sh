# The server lets each user do what the modes say.
mkdir -m 755 $WORK/access
cd $WORK/access
as() { setpriv --reuid "$1" --regid "$1" --groups "$2" "${@:3}"; }
mkdir -m 1777 shared
mkdir -m 770 team
chgrp 500 team
echo secret >private
chmod 600 private
echo public >public
chmod 644 public
as 1001 1001 touch shared/mine
expect owner 1001:1001 "$(stat -c %u:%g shared/mine)"
refused as 1002 1002 rm -f shared/mine
refused as 1001 1001 touch new
refused as 1001 1001 cat private
refused as 1001 1001 sh -c 'echo x >>public'
expect "public" public "$(as 1001 1001 cat public)"
refused as 1001 1001 touch team/x
as 1001 500 touch team/y
expect "owner in the team's directory" 1001:1001 "$(stat -c %u:%g team/y)"
refused as 1001 1001 chown 1002 shared/mine
refused as 1002 1002 chmod 777 shared/mine
as 1001 1001 chmod 4755 shared/mine
expect mode 4755 "$(stat -c %a shared/mine)"
cd /
rm -rf $WORK/access
