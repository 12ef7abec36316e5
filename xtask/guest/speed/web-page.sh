# A web page comes ROUNDS times from one client, which knows nothing the first time: with VERS a mount, without it Landfast's
# library. That it has written what it says is seen by another client.
place=nfs://$SERVER:$PORT/
[ -z "$VERS" ] || { mount_export; place=$MNT; }
/root/landfast lab at web-page "$place" --rounds "$ROUNDS" --seed "$SEED" --json >/run/rounds || die "the page"
[ -z "$VERS" ] || umount $MNT
sed 's/^/@round page /' /run/rounds
/root/landfast lab at web-page "nfs://$SERVER:$PORT/" --check --seed "$SEED"
