# Lists the tree below the directory DIR of the mount once. Prints the milliseconds that `ls -lR` took, those of the longest time in which it
# printed nothing (it prints 4 KiB at a time), and then what it said.
cd $MNT/$DIR
LC_ALL=C perl -e '
use strict;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
my ($said, $longest) = ("", 0);
my $began = my $last = clock_gettime(CLOCK_MONOTONIC);
open my $ls, "-|", "ls", "-lRn", "--time-style=+%s", "tree" or die "ls: $!";
while (1) {
    my $got = sysread $ls, $said, 65536, length $said;
    die "ls: $!" unless defined $got;
    my $now = clock_gettime(CLOCK_MONOTONIC);
    $longest = $now - $last if $now - $last > $longest;
    $last = $now;
    last unless $got;
}
close $ls or die "ls: exit status $?";
printf "%d %d\n%s", 1000 * ($last - $began), 1000 * $longest, $said;
'
