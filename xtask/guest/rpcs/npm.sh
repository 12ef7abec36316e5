# What npm's installation of 20 packages does to a tree, as system calls: every file is opened, written and closed, one after another, without
# times or modes; each package has its files in a few directories, every fourth has packages of its own, every second a program
# in .bin; at the end comes a list of all that is renamed into its place.
perl -e '
use strict;
my ($files, $directories) = (0, 0);
sub directory { my ($path) = @_; return if -d $path; mkdir $path or die "$path: $!"; $directories++; }
sub file {
    my ($path, $bytes) = @_;
    open my $file, ">", $path or die "$path: $!";
    print $file "x" x $bytes or die "$path: $!";
    close $file or die "$path: $!";
    $files++;
}
sub package_at {
    my ($path, $number, $depth) = @_;
    directory($path);
    file("$path/$_", 900 + 37 * $number) for "package.json", "README.md", "LICENSE", "index.js";
    for my $directory ("lib", "lib/util", "dist") {
        directory("$path/$directory");
        file("$path/$directory/part$_.js", 300 + 100 * $_) for 1 .. 4;
    }
    return if $depth or $number % 4;
    directory("$path/node_modules");
    package_at("$path/node_modules/inner$_", $_, 1) for 1, 2;
}
directory("node_modules");
directory("node_modules/.bin");
for my $number (0 .. 19) {
    package_at("node_modules/package$number", $number, 0);
    symlink "../package$number/index.js", "node_modules/.bin/program$number" or die $! if $number % 2;
}
file("node_modules/.package-lock.json.new", 20_000);
rename "node_modules/.package-lock.json.new", "node_modules/.package-lock.json" or die $!;
print "$files $directories\n";
'
