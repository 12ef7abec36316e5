# Holds one file: hold.pl WHAT PATH. Writes 20,000 bytes and has them on the server; then, unless WHAT is `clean`, some more that only the
# client knows, and says so. When it is told to go on it uses the file as if nothing had happened, and says what came of each call: 0, or errno.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :flock);
use IO::Handle;

my ($what, $path) = @ARGV;

sub end_of { $_[0] ? 0 : $! + 0 }

sub put {
    my ($file, $at, $text) = @_;
    return end_of(defined(sysseek($file, $at, 0)) && defined(syswrite($file, $text)));
}

sub tell_host {
    open(my $fifo, '>', "/run/landfast/$_[0]-$what") or die "$_[0]: $!";
    print $fifo "$_[1]\n";
    close($fifo) or die "$_[0]: $!";
}

sysopen(my $file, $path, O_RDWR | O_CREAT, 0644) or die "$path: $!";
if ($what eq 'locked') { flock($file, LOCK_EX) or die "$path: $!" }
put($file, 0, 'A' x 20_000) == 0 or die "$path: $!";
$file->sync or die "$path: $!";
if ($what ne 'clean') {
    # In one piece: Linux writes a piece back before it keeps another one of the same folio.
    put($file, 1000, 'dirty' x 3000) == 0 or die "$path: $!";
}
tell_host('holds', 'yes');
open(my $go, '<', "/run/landfast/go-$what") or die "go: $!";
readline($go);
my $write = $what eq 'clean' ? 0 : put($file, 4096, 'late');
my $sync = end_of($file->sync);
my $close = end_of(close($file));
tell_host('says', "$write $sync $close");
