#!/usr/bin/env bash
# Sets gdbext up for the gdb at hand. What each mode does is in usage().
#
# gdb embeds a Python of its own, often not the one on PATH, so gdb is asked which; numpy and tabulate are
# installed for exactly that one into .deps/pyX.Y, a plain directory of packages that gdbext/load.py finds.
# What is added outside the checkout is written down in .deps/added, and --uninstall removes just that.
set -euo pipefail

ROOT=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
DEPS=$ROOT/.deps
GDB=${GDB:-gdb}
GDB_FLOOR=10
PYTHON_FLOOR=3.9
DEMO_PROGRAM=arena_proliferation
REPORT=yes
FLEET=no
S3=no

# pip and gdb's own modules warn: with PYTHONWARNINGS=error nothing could be installed. It is for the tests.
warnings=${PYTHONWARNINGS-}
unset PYTHONWARNINGS

usage() {
    cat <<'END'
Usage: ./install.sh [--gdb PROGRAM] [--gdbinit] [--no-report] [--fleet] [--s3]
                                                  install for this gdb; --gdbinit adds the source line, --no-report
                                                  leaves out what the pages of `gdbext report` need, --fleet brings
                                                  what `gdbext fleet` needs, --s3 that and what it needs
                                                  for s3:// besides
       ./install.sh --demo                        install, break a program, print the triage of its core
       ./install.sh --test[=full] [PYTEST ARGS]   set up all the tests need and run them
       ./install.sh --uninstall                   remove what was added
--demo and --test install missing system packages on Debian and Ubuntu, as root or through sudo.
END
}

say() { printf 'gdbext: %s\n' "$*"; }

fail() {
    printf 'gdbext: install: %s\n' "$*" >&2
    exit 2
}

version_at_least() { [[ $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# ---- system packages ---------------------------------------------------------------------------

on_debian() { [[ -n $(type -P apt-get) && -n $(type -P dpkg-query) ]]; }

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif [[ -z $(type -P sudo) ]]; then
        return 1
    elif [[ -t 0 ]]; then
        sudo "$@"
    else
        sudo -n "$@" 2>/dev/null
    fi
}

package_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

package_known() { [[ -n $(apt-cache show "$1" 2>/dev/null) ]]; }

run_apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -qq "$@" >>"$DEPS/apt.log" 2>&1 </dev/null; }

# Install Debian packages, or return 1. The lists are fetched anew: a fresh machine has none.
install_packages() {
    on_debian && as_root true || return 1
    say "installing the system packages $*"
    mkdir -p "$DEPS"
    run_apt update || say "apt-get update failed; going on with the package lists at hand"
    run_apt install --no-install-recommends "$@" || return 1
    record "packages $*"
}

has_compiler() { [[ -n $(type -P gcc) ]]; }
has_headers() { has_compiler && gcc -E -x c - <<<'#include <pthread.h>' >/dev/null 2>&1; }
has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

# Print the Debian packages that --demo and --test cannot do without and that are missing.
missing_essentials() {
    [[ -n $(type -P "$GDB") ]] || echo gdb
    has_compiler || echo gcc
    has_headers || echo libc6-dev
    has_venv || echo python3-venv
}

install_essentials() {
    local missing
    mapfile -t missing < <(missing_essentials)
    ((${#missing[@]} == 0)) && return
    on_debian || fail "missing: ${missing[*]} (as Debian calls them); install them and run this again"
    as_root true || fail "missing: ${missing[*]}; neither root nor sudo here: as root, apt-get install ${missing[*]}"
    install_packages "${missing[@]}" ||
        fail "cannot install ${missing[*]} (see .deps/apt.log); as root: apt-get install ${missing[*]}"
}

# ---- the gdb and its Python --------------------------------------------------------------------

ask_gdb() { "$GDB" -q -nx -batch -ex "python $1" 2>&1 </dev/null || true; }

# Set PY (the version of the Python in gdb) and PY_PREFIX (where that Python was installed).
probe_gdb() {
    [[ -n $(type -P "$GDB") ]] || fail "no program $GDB; install gdb (on Debian: apt-get install gdb) or name one with --gdb PROGRAM"
    local answer version
    answer=$(ask_gdb 'import sys; print("gdbext-probe %s %d.%d %s" % ("".join(gdb.VERSION.split()), sys.version_info[0], sys.version_info[1], getattr(sys, "base_prefix", sys.prefix)))')
    read -r _ version PY PY_PREFIX < <(grep -m 1 '^gdbext-probe ' <<<"$answer") || fail_without_python "$answer"
    check_versions "$version"
}

fail_without_python() {
    if [[ $1 == *"not supported in this copy of GDB"* ]]; then
        fail "$GDB was built without Python; install one with Python (Debian's gdb, not gdb-minimal) or name one with --gdb PROGRAM"
    fi
    fail "$GDB cannot run Python: $(head -n 1 <<<"$1"); repair it or name another with --gdb PROGRAM"
}

check_versions() {
    local gdb_version=$1
    [[ $gdb_version =~ [0-9]+(\.[0-9]+)+ ]] && gdb_version=${BASH_REMATCH[0]}
    version_at_least "$gdb_version" $GDB_FLOOR ||
        fail "$GDB is version $gdb_version; gdbext needs $GDB_FLOOR or later: name one with --gdb PROGRAM"
    version_at_least "$PY" $PYTHON_FLOOR ||
        fail "$GDB embeds Python $PY; gdbext needs $PYTHON_FLOOR or later: name another gdb with --gdb PROGRAM"
    say "$GDB $gdb_version embeds Python $PY"
}

python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

# Print the interpreter of the version that gdb embeds, or nothing.
find_interpreter() {
    local candidate
    for candidate in "$PY_PREFIX/bin/python$PY" "python$PY" python3; do
        if [[ $(python_version "$candidate") == "$PY" ]]; then
            echo "$candidate"
            return
        fi
    done
}

# ---- numpy, tabulate and tomli inside gdb----------------------------------------------------------

floors() { sed -n 's/^\([a-z]*\)>=\(.*\)/\1 \2/p' "$ROOT/requirements/gdb.txt"; }

# Print "NAME VERSION FILE" of each package, as gdb meets it with directory $1 first in its path.
packages_in_gdb() {
    GDBEXT_FIRST=$1 ask_gdb 'import os, sys; sys.path.insert(0, os.environ["GDBEXT_FIRST"]); import numpy, tabulate, tomli; [print(m.__name__, m.__version__, m.__file__) for m in (numpy, tabulate, tomli)]'
}

# Whether gdb can use directory $1: all packages are in it, and none is below its floor.
serves_gdb() {
    local answer name floor version file
    [[ -d $1 ]] || return 1
    answer=$(packages_in_gdb "$1")
    while read -r name floor; do
        read -r _ version file < <(grep "^$name " <<<"$answer") || return 1
        [[ $file == "$1"/* ]] && version_at_least "$version" "$floor" || return 1
    done < <(floors)
}

# Set PIP to a pip run by interpreter $1: its own, or that of a venv in directory $2.
find_pip() {
    PIP=("$1" -m pip)
    "${PIP[@]}" --version >/dev/null 2>&1 && return
    "$1" -m venv "$2" >/dev/null 2>&1 || return 1
    PIP=("$2/bin/python" -m pip)
}

pip_install() {
    PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1 \
        "${PIP[@]}" --disable-pip-version-check --retries 2 install -q "$@" >"$DEPS/pip.log" 2>&1 </dev/null
}

# Fill directory $1 with pip, by file $2 of requirements/: by the interpreter that gdb embeds, else with wheels for it.
install_by_pip() {
    local python scratch=$DEPS/scratch foreign=()
    python=$(find_interpreter)
    if [[ -z $python ]]; then
        python=python3
        foreign=(--python-version "$PY" --only-binary=:all:)
    fi
    echo "no pip for Python $PY at hand" >"$DEPS/pip.log"
    find_pip "$python" "$scratch" || return 1
    pip_install --target "$1" "${foreign[@]}" -r "$ROOT/requirements/$2.txt"
}

# Print "gdbext-link FILE" of what the packages load from where they lie. What they own is written down nowhere that every
# distribution has (Debian takes RECORD away), and compiled ones own more than their folder: mypyc puts a library beside it.
loaded_by_packages() {
    ask_gdb 'import os, sys, numpy, tabulate, tomli; top = lambda m: os.path.dirname(m.__file__) if hasattr(m, "__path__") else m.__file__; places = {os.path.dirname(top(m)) for m in (numpy, tabulate, tomli)}; [print("gdbext-link", top(m)) for name, m in sorted(sys.modules.items()) if "." not in name and getattr(m, "__file__", None) and os.path.dirname(top(m)) in places]'
}

# Fill directory $1 with links to the packages that gdb's own Python has.
link_from_distribution() {
    local file
    while read -r file; do
        ln -s "$file" "$1/"
    done < <(loaded_by_packages | sed -n 's/^gdbext-link //p')
}

install_by_distribution() {
    link_from_distribution "$1"
    serves_gdb "$1" && return
    install_packages python3-{numpy,tabulate,tomli} || return 1
    rm -rf "${1:?}"/*
    link_from_distribution "$1"
}

pip_complaint() { grep -v '^$' "$DEPS/pip.log" | grep -m 1 -E '^ERROR' || tail -n 1 "$DEPS/pip.log"; }

# Fill $1 by method $2; whatever is left behind by one that fails is removed.
try_method() {
    rm -rf "$1"
    mkdir -p "$1"
    "$2" "$1" gdb && serves_gdb "$1" && return
    rm -rf "$1"
    return 1
}

install_deps() {
    local target=$DEPS/py$PY fresh
    fresh=$DEPS/new-$$
    if serves_gdb "$target"; then
        say "numpy, tabulate and tomli for Python $PY are in place"
        return
    fi
    mkdir -p "$DEPS"
    if try_method "$fresh" install_by_pip; then
        say "installed numpy, tabulate and tomli for Python $PY"
    else
        say "pip did not get numpy, tabulate and tomli ($(pip_complaint)); using the distribution's"
        try_method "$fresh" install_by_distribution ||
            fail "no numpy, tabulate and tomli for Python $PY; let pip reach its registry, or install the distribution's python3-numpy, python3-tabulate and python3-tomli"
    fi
    rm -rf "$target" "$DEPS/scratch"
    mv -T "$fresh" "$target"
}

# Whether gdb finds Jinja2, which only pages need, in directory $1.
draws_in_gdb() { [[ $(GDBEXT_FIRST=$1 ask_gdb 'import os, sys; sys.path.insert(0, os.environ["GDBEXT_FIRST"]); import jinja2; print(jinja2.__file__)') == "$1"/* ]]; }

# Link what of Jinja2 gdb's own Python has into directory $1.
link_drawing() {
    local file
    while read -r file; do
        ln -sfn "$file" "$1/${file##*/}"
    done < <(ask_gdb 'import os, jinja2, markupsafe; [print("gdbext-link", os.path.dirname(m.__file__)) for m in (jinja2, markupsafe)]' | sed -n 's/^gdbext-link //p')
    draws_in_gdb "$1"
}

# Add Jinja2 to what gdb's Python has from us; whatever fails costs nobody but `report`.
install_drawing() {
    local target=$DEPS/py$PY fresh=$DEPS/new-$$
    [[ $REPORT == yes ]] && ! draws_in_gdb "$target" || return 0
    rm -rf "$fresh" "$target"/{jinja2,markupsafe}*
    mkdir -p "$fresh"
    if install_by_pip "$fresh" report && draws_in_gdb "$fresh"; then
        mv "$fresh"/* "$target/"
        say "installed Jinja2 for Python $PY"
    elif ! link_drawing "$target" && ! { install_packages python3-jinja2 && link_drawing "$target"; }; then
        say "without Jinja2: gdbext report and heapmap --svg need it ($(pip_complaint))"
    fi
    rm -rf "$fresh" "$DEPS/scratch"
}

# Add what gdbext fleet needs, where it is asked for.
install_fleet() {
    [[ $FLEET == no ]] || add_packages fleet "pyarrow and DuckDB" "gdbext fleet needs them" pyarrow duckdb _duckdb
    [[ $S3 == no ]] || add_packages s3 "s3fs" "gdbext fleet needs it for s3://" fsspec s3fs
}

# Add packages by file $1 of requirements/, which $2 names, or say that $3; what is there already, numpy among it,
# stays, but for those that begin with the other words.
add_packages() {
    local target=$DEPS/py$PY fresh=$DEPS/new-$$ file name
    rm -rf "$fresh"
    for name in "${@:4}"; do rm -rf "${target:?}/$name"*; done
    mkdir -p "$fresh"
    if install_by_pip "$fresh" "$1"; then
        for file in "$fresh"/*; do
            [[ -e $target/${file##*/} ]] || mv "$file" "$target/"
        done
        say "installed $2 for Python $PY"
    else
        say "without $2: $3 ($(pip_complaint))"
    fi
    rm -rf "$fresh" "$DEPS/scratch"
}

# ---- native kernels ----------------------------------------------------------------------------

# Set CARGO to the first cargo that runs, or return 1, with the reason in NO_CARGO. rustup's is there without a
# toolchain too: then the next one on PATH, the distribution's, may do.
find_cargo() {
    local complaint
    NO_CARGO="no Rust toolchain"
    while read -r CARGO; do
        complaint=$(run_cargo --version 2>&1 >/dev/null) && return
        NO_CARGO="no Rust toolchain that runs ($CARGO: ${complaint%%$'\n'*})"
    done < <(type -aP cargo)
    return 1
}

# cargo runs the rustc that it meets first; rustup must not fetch a toolchain that nobody asked for.
run_cargo() { PATH=${CARGO%/*}:$PATH RUSTUP_AUTO_INSTALL=0 "$CARGO" "$@" </dev/null; }

cargo_native() {
    local verb=$1
    shift
    run_cargo "$verb" --offline --manifest-path "$ROOT/native/Cargo.toml" --target-dir "$ROOT/native/target" "$@"
}

# Build the library, or say in one line what runs instead; one that was built of other sources is not left behind.
build_native() {
    local native=$ROOT/native library
    library=$native/target/release/libgdbext_native.so
    [[ -f $native/Cargo.toml ]] || return 0
    if ! find_cargo; then
        if [[ -f $library && -z $(find "$native"/{src,Cargo.toml,Cargo.lock} -newer "$library") ]]; then
            say "$NO_CARGO: the native kernels that were built before will run"
            return
        fi
    elif cargo_native build -q --release 2>"$DEPS/cargo.log"; then
        say "built the native kernels"
        return
    else
        NO_CARGO="the native kernels did not build (see .deps/cargo.log)"
    fi
    rm -f "$library"
    say "$NO_CARGO: the slower reference kernels will run"
}

# ---- what is added to the user's home ----------------------------------------------------------

record() {
    mkdir -p "$DEPS"
    grep -qsxF -- "$1" "$DEPS/added" || printf '%s\n' "$1" >>"$DEPS/added"
}

recorded() { [[ ! -f $DEPS/added ]] || sed -n "s/^$1 //p" "$DEPS/added"; }

link_program() {
    local link=$HOME/.local/bin/gdbext
    if [[ $(readlink -f -- "$link") == "$ROOT/bin/gdbext" ]]; then
        return
    elif [[ -e $link || -L $link ]]; then
        say "$link is not ours and stays; run $ROOT/bin/gdbext"
        return
    fi
    mkdir -p "${link%/*}"
    ln -s "$ROOT/bin/gdbext" "$link"
    record "link $link"
    say "linked $link"
    [[ :$PATH: == *:${link%/*}:* ]] || say "${link%/*} is not on your PATH"
}

source_line() { printf 'source %s/gdbext/load.py' "$ROOT"; }

# Print the init file that this gdb reads, or would read.
find_gdbinit() {
    local read_now
    read_now=$("$GDB" --help 2>/dev/null </dev/null | sed -n 's/^ *\* user-specific init files*: *//p')
    printf '%s\n' "${read_now:-$HOME/.gdbinit}"
}

add_source_line() {
    local file
    file=$(find_gdbinit)
    if grep -qsxF -- "$(source_line)" "$file"; then
        say "$file sources gdbext already"
        return
    fi
    [[ -e $file ]] || record "created $file"
    [[ ! -s $file || -z $(tail -c 1 -- "$file") ]] || echo >>"$file"
    printf '%s\n' "$(source_line)" >>"$file"
    record "gdbinit $file"
    say "added to $file: $(source_line)"
}

# Take our line out of file $1; a file that we made and that holds nothing else goes too.
remove_source_line() {
    [[ -f $1 ]] || return 0
    local rest
    rest=$(grep -vxF -- "$(source_line)" "$1" && echo x || echo x)
    printf '%s' "${rest%x}" >"$1"
    if [[ ! -s $1 ]] && recorded created | grep -qxF -- "$1"; then
        rm -- "$1"
    fi
    say "took our line out of $1"
}

remove_link() {
    [[ $(readlink -f -- "$1") == "$ROOT/bin/gdbext" ]] || return 0
    rm -- "$1"
    say "removed $1"
}

uninstall() {
    local path
    while read -r path; do remove_source_line "$path"; done < <(recorded gdbinit)
    while read -r path; do remove_link "$path"; done < <(recorded link)
    while read -r path; do say "the system packages that were installed stay: $path"; done < <(recorded packages)
    rm -rf "$DEPS" "$ROOT/.venv" "$ROOT/build/demo" "$ROOT/build/typed" "$ROOT"/native/{,fuzz/}target
    find "$ROOT"/{gdbext,commands,printers} -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
    say "removed what was installed below $ROOT"
}

# ---- modes -------------------------------------------------------------------------------------

set_up() {
    set_up_gdb
    build_native
    compile_pack
}

set_up_gdb() {
    { mkdir -p "$DEPS" && [[ -w $DEPS ]]; } 2>/dev/null || fail "cannot write to $DEPS; run this as the owner of the checkout"
    probe_gdb
    install_deps
    install_drawing
    install_fleet
}

# gdb keeps no compiled modules of its own accord: compiling ours anew at each start is a good part of it.
compile_pack() {
    GDBEXT_ROOT=$ROOT ask_gdb 'import compileall, os; [compileall.compile_dir(os.path.join(os.environ["GDBEXT_ROOT"], part), quiet=2) for part in ("gdbext", "commands", "printers")]' >/dev/null
}

install_pack() {
    set_up
    link_program
    if [[ $1 == yes ]]; then
        add_source_line
    else
        say "put this line into $(find_gdbinit), or run ./install.sh --gdbinit:"
        source_line && echo
    fi
}

# Whether the kernel writes cores where the program runs, rather than elsewhere or into a crash reporter.
kernel_dumps_here() {
    local pattern
    pattern=$(cat /proc/sys/kernel/core_pattern 2>/dev/null || true)
    [[ $pattern == [!/\|]* ]] && ulimit -c unlimited 2>/dev/null
}

# Leave the file "core": by the kernel, else by gdb.
dump_core() {
    if kernel_dumps_here; then
        { "./$DEMO_PROGRAM" --truth truth.json --abort >program.log 2>&1 </dev/null || true; } 2>/dev/null
        find . -maxdepth 1 -name '*core*' -size +64k ! -name core -exec mv {} core \;
        [[ -f core ]] && return
    fi
    # Older gdbs write out each arena's unused 64 MiB too, hence fewer threads.
    "$GDB" -q -nx -batch -ex "set startup-with-shell off" -ex run -ex "generate-core-file core" \
        --args "./$DEMO_PROGRAM" --threads 16 --truth truth.json --abort >gdb.log 2>&1 </dev/null || true
    [[ -f core ]]
}

make_core() {
    rm -rf "$1"
    mkdir -p "$1"
    cd "$1"
    gcc -g -O1 -pthread -o "$DEMO_PROGRAM" "$ROOT/testprogs/$DEMO_PROGRAM.c" ||
        fail "the compiler could not build testprogs/$DEMO_PROGRAM.c; see its message above"
    dump_core || fail "no core of $DEMO_PROGRAM could be taken; allow cores (ulimit -c unlimited) or ptrace"
}

# Print a path of the checkout as it can be typed here.
from_here() { printf '%q' "${1#"$PWD"/}"; }

demo() {
    local place=$ROOT/build/demo core program status=0
    install_essentials
    set_up
    say "running a program that spreads its memory over too many arenas"
    (make_core "$place")
    core=$(from_here "$place/core")
    program=$(from_here "$place/$DEMO_PROGRAM")
    say "$(from_here "$ROOT/bin/gdbext") triage --core $core"
    "$ROOT/bin/gdbext" triage --core "$core" --exe "$program" --gdb "$GDB" || status=$?
    [[ $status == [013] ]] || fail "triage could not read the core: see above"
    say "next, the same core in gdb: $GDB -x $(from_here "$ROOT/gdbext/load.py") $program $core"
    say "or a process or core of yours: $(from_here "$ROOT/bin/gdbext") triage --pid PID, or --core CORE"
}

# ---- tests -------------------------------------------------------------------------------------

WANTED=(cargo shellcheck chromium chromium-driver g++ make gdbserver gcc-multilib libc6-dbg python3-drgn elfutils binutils xz-utils zstd lz4 musl-tools libjemalloc2 libtcmalloc-minimal4 valgrind zsh fish)
CONTAINERS=(libglib2.0-dev libhts-dev libsqlite3-dev libsystemd-shared pkg-config uthash-dev)
SERVERS=(memcached nginx-light unbound redis-server varnish bind9 postgresql)

# Debian starts a server when it is installed; nobody asked for that, so they are installed only where it does not.
servers_stay_stopped() { [[ ! -d /run/systemd/system || -e /usr/sbin/policy-rc.d ]]; }

# What only some tests need: a test that misses it skips with its reason.
install_wanted() {
    local package missing=() wanted=("${WANTED[@]}" "${CONTAINERS[@]}")
    on_debian || return 0
    if servers_stay_stopped; then wanted+=("${SERVERS[@]}"); fi
    [[ $(type -P javac) ]] || wanted+=(default-jdk-headless)
    for package in "${wanted[@]}"; do
        package_installed "$package" || missing+=("$package")
    done
    ((${#missing[@]} == 0)) && return
    install_packages "${missing[@]}" || install_one_by_one "${missing[@]}"
}

install_one_by_one() {
    local package
    for package in "$@"; do
        { package_known "$package" && install_packages "$package"; } || say "without $package: tests that need it skip"
    done
}

system_python() {
    local python=/usr/bin/python3
    [[ -x $python ]] || python=python3
    version_at_least "$(python_version "$python")" $PYTHON_FLOOR ||
        fail "$python is Python $(python_version "$python"); the tests need $PYTHON_FLOOR or later"
    echo "$python"
}

make_venv() {
    "$@" --clear "$ROOT/.venv" >"$DEPS/venv.log" 2>&1 ||
        fail "cannot make .venv: $(tail -n 1 "$DEPS/venv.log"); on Debian: apt-get install python3-venv"
}

# The developers' venv: all of it by pip, else by the distribution, whose mypy and ruff are too old or absent.
set_up_venv() {
    local python
    python=$(system_python)
    PIP=("$ROOT/.venv/bin/python" -m pip)
    "${PIP[@]}" --version >/dev/null 2>&1 || make_venv "$python" -m venv
    if pip_install -r "$ROOT/requirements/gdb.txt" -r "$ROOT/requirements/dev.txt"; then
        pip_install -r "$ROOT/requirements/library.txt" || say "without pyarrow, DuckDB, s3fs, moto, pandas, matplotlib, Jinja2 and Selenium: tests that need them skip"
        return
    fi
    say "pip did not get the test tools ($(pip_complaint)); using the distribution's"
    install_packages python3-{numpy,tabulate,tomli,pytest,hypothesis,pytest-xdist} ||
        fail "no test tools; let pip reach its registry, or install requirements/dev.txt some other way"
    make_venv "$python" -m venv --system-site-packages
}

check_with() {
    local name=$1
    shift
    if ! "$ROOT/.venv/bin/python" -m "$name" --version >/dev/null 2>&1; then
        say "$name is not at hand: its check is skipped"
    elif "$ROOT/.venv/bin/python" -m "$name" "$@"; then
        return 0
    else
        say "$name found faults: this run fails, whatever pytest says"
        return 1
    fi
}

# Lay the package out as a wheel has it, by links, for the type checker.
lay_out_package() {
    local place=$ROOT/build/typed/gdbext name
    rm -rf "$place"
    mkdir -p "$place"
    for name in "$ROOT"/gdbext/* "$ROOT"/{commands,printers}; do
        [[ ! -e $name ]] || ln -s "$name" "$place/"
    done
}

# What needs no test: style, types and the native kernels' own tests. They run beside pytest and give way to it.
run_checks() {
    local status=0
    renice -n 10 "$BASHPID" >/dev/null 2>&1 || true
    check_with ruff check . || status=1
    lay_out_package
    check_with mypy || status=1
    check_native || status=1
    check_instructions || status=1
    return $status
}

check_instructions() {
    local status=0
    "$ROOT/.venv/bin/python" bench/instructions.py || status=$?
    ((status == 0)) || say "$([[ $status == 2 ]] && echo 'no instructions were counted' || echo 'the engine got slower: this run fails')"
    ((status == 0 || status == 2))
}

# The native kernels' own tests, and with the newer toolchains their style.
check_native() {
    local status=0
    find_cargo || return 0
    cargo_native test -q --release >"$DEPS/cargo.log" 2>&1 || status=1
    if run_cargo clippy --version >/dev/null 2>&1; then
        cargo_native clippy -q --all-targets -- -D warnings >>"$DEPS/cargo.log" 2>&1 || status=1
    fi
    if run_cargo fmt --version >/dev/null 2>&1; then
        (cd "$ROOT/native" && run_cargo fmt --check) >>"$DEPS/cargo.log" 2>&1 || status=1
    fi
    ((status == 0)) || { cat "$DEPS/cargo.log" && say "the native kernels have faults: this run fails"; }
    return $status
}

run_tests() {
    local boards=$1 status=0 native checks
    shift
    install_essentials
    install_wanted
    set_up_gdb
    build_native &
    native=$!
    set_up_venv
    wait "$native"
    compile_pack
    cd "$ROOT"
    run_checks >"$DEPS/checks.log" 2>&1 </dev/null &
    checks=$!
    env ${warnings:+"PYTHONWARNINGS=$warnings"} .venv/bin/python -m pytest -q -rs -n 2 "--boards=$boards" "$@" </dev/null || status=1
    wait "$checks" || status=1
    cat "$DEPS/checks.log"
    exit $status
}

main() {
    local gdbinit=no mode=install
    while (($#)); do
        case $1 in
            --gdb) [[ ${2:-} ]] || fail "--gdb needs a program; see ./install.sh --help"; GDB=$2 && shift ;;
            --gdb=*) GDB=${1#*=} ;;
            --gdbinit) gdbinit=yes ;;
            --no-report) REPORT=no ;;
            --fleet) FLEET=yes ;;
            --s3) FLEET=yes S3=yes ;;
            --uninstall | --demo) mode=${1#--} ;;
            --test) shift && run_tests pairwise "$@" ;;
            --test=full) shift && run_tests full "$@" ;;
            -h | --help) usage && exit ;;
            *) fail "no option $1; see ./install.sh --help" ;;
        esac
        shift
    done
    case $mode in
        install) install_pack $gdbinit ;;
        *) "$mode" ;;
    esac
}

main "$@"
