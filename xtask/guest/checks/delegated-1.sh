# First client: files that it has made, and whose delegations it has where the server gives any; one is open. The same twice.
rm -f /run/landfast/held-go* /run/landfast/held-done*
for n in 1 2; do
    mkdir $WORK/held-$n
    for file in appended opened renamed replaced removed moded shortened linked looked timed locked; do
        echo "first $file" >$WORK/held-$n/$file
    done
    touch -d @981173106 $WORK/held-$n/timed
    mkfifo /run/landfast/held-go-$n /run/landfast/held-done-$n
    sh -c 'exec 7>>$0; read -r _ </run/landfast/held-go-$1; echo third >&7; exec 7>&-; echo yes >/run/landfast/held-done-$1' \
        $WORK/held-$n/opened $n </dev/null >/dev/null 2>&1 &
done
