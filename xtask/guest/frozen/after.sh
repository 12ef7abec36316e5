# Client: what it sees in the end, by the names that are there; then it has nothing left to write.
forget
for file in $FILES; do
    if [ -e "$MNT/$ROUND/$file" ]; then echo "$file $(md5sum <"$MNT/$ROUND/$file")"; else echo "$file gone"; fi
done
umount $MNT
