# Builds for 64-bit Arm on x86-64, and runs what was built under QEMU's emulation of a process: to be sourced by the scripts beside it.
#
# Needs Debian. Rust's standard library for Arm is that of the first of Debian's releases, from backports on, that has a rustc of the same
# version: both are unpacked under target/arm64, and so is the C library that this rustc needs. As root, installs what else is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=aarch64-unknown-linux-gnu
releases=(trixie-backports forky sid)
programs=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
folder=$PWD/target/arm64
log=$folder/install.log
apt=$folder/apt

# Makes cargo build for Arm. Ends the script with what the machine lacks, or with what to do on one that is not x86-64.
use_toolchain() {
    [ "$(uname -m)" = x86_64 ] || skip "this machine is not x86-64; on 64-bit Arm, \`$1\` does it"
    command -v apt-get dpkg-deb >/dev/null || skip "this is not Debian, which has Rust's standard library for Arm as a package"
    mkdir -p "$folder"
    install_programs
    [ -d "$folder/toolchain" ] || unpack_toolchain
    export RUSTC=$folder/toolchain/rustc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
    export CARGO_TARGET_DIR=$folder
}

skip() {
    echo "skipped: $1"
    exit 0
}

# Installs the C compiler, which links, the C library for Arm, and QEMU.
install_programs() {
    if dpkg-query --show "${programs[@]}" >/dev/null 2>&1; then return; fi
    if [ "$(id -u)" != 0 ]; then
        echo "packages are missing: run \`apt-get install --no-install-recommends ${programs[*]}\` as root" >&2
        exit 1
    fi
    { apt-get update && apt-get install --yes --no-install-recommends "${programs[@]}"; } >"$log" 2>&1 ||
        skip "${programs[*]} cannot be installed here ($log)"
}

# Unpacks rustc, its libraries, and the standard libraries for this machine and for Arm.
unpack_toolchain() {
    local new=$folder/toolchain.new release of_rustc="" of_std=none
    # One machine's packages are there some days before those of another.
    for release in "${releases[@]}"; do
        use_release "$release"
        of_rustc=$(version rustc) of_std=$(version libstd-rust-dev:arm64)
        [ "$of_rustc" != "$of_std" ] || break
    done
    [ "$of_rustc" = "$of_std" ] || skip "Debian's rustc, $of_rustc, is not of the version of its standard library for Arm, $of_std"
    # rustc itself is taken without the C compiler that it depends on.
    unpack "$new" libstd-rust-dev -- rustc libstd-rust-dev:arm64
    cat >"$new/rustc" <<'RUSTC'
#!/bin/sh
root=${0%/*}
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/rustc" --sysroot "$root/usr" "$@"
RUSTC
    chmod +x "$new/rustc"
    mv "$new" "$folder/toolchain"
}

# Makes apt, with lists and settings of its own so that nothing changes for the machine's, know the packages of a release of Debian. Asks
# the mirror of this machine.
use_release() {
    local release=$1 mirror suite
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '/^https?:.*\/debian\/?$/ && !found++')
    [ -n "$mirror" ] || skip "apt has no mirror of Debian"
    rm -rf "$apt"
    mkdir -p "$apt"/{lists,cache/archives}/partial
    touch "$apt/status"
    # Backports need the release that they are for.
    for suite in $(printf '%s\n' "${release%-backports}" "$release" | uniq); do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
APT::Architecture "amd64";
APT::Architectures { "amd64"; "arm64"; };
APT::Default-Release "$release";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::Cache "$apt/cache";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
CONF
    APT_CONFIG=$apt/apt.conf apt-get update >"$log" 2>&1 || skip "Debian's packages of $release cannot be listed here ($log)"
}

# Returns the version of a package that would be installed.
version() {
    APT_CONFIG=$apt/apt.conf apt-cache policy "$1" | awk '$1 == "Candidate:" { print $2 }'
}

# unpack NEW PACKAGE... -- [PACKAGE...]: unpacks packages of the release in use into the folder NEW, the first ones with all that they
# depend on.
unpack() {
    local new=$1 deb with=()
    shift
    while [ "$1" != -- ]; do with+=("$1") && shift; done
    shift
    rm -rf "$new"
    mkdir -p "$new"
    (
        export APT_CONFIG=$apt/apt.conf
        apt-get install --yes --download-only "${with[@]}" && cd "$apt/cache/archives"
        [ $# = 0 ] || apt-get download "$@"
    ) >"$log" 2>&1 || skip "${with[*]} $* cannot be had from Debian here ($log)"
    for deb in "$apt"/cache/archives/*.deb; do dpkg-deb --extract "$deb" "$new"; done
    rm -r "$apt"
}
