#!/bin/sh
# Downloads a data set and checks every file's SHA-256.
#
#   datasets/fetch.sh mnist|fashion-mnist|cifar10|tinyshakespeare [DIR]      (DIR: data)
#
# The files land in DIR/<name>, where `lockstep --data-dir DIR` finds them. Files that are there and
# whole are kept; an interrupted download goes on where it stopped; a file gets its name only after
# its checksum was right. LOCKSTEP_MIRROR=URL takes the files from URL/<name>/ instead of their
# official places (a classroom's server, say): the checksums still decide.
#
# MNIST: Y. LeCun, C. Cortes, C. Burges. Fashion-MNIST: Zalando SE, MIT licence. CIFAR-10:
# A. Krizhevsky. Tiny Shakespeare: A. Karpathy, of a text in the public domain.
set -eu

fail() {
  echo "fetch.sh: $*" >&2
  exit 1
}

usage() {
  echo "usage: datasets/fetch.sh mnist|fashion-mnist|cifar10|tinyshakespeare [DIR]" >&2
  exit 2
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then usage; fi
name=$1
folder=${2:-data}/$name

case $name in
  mnist)
    url=https://ossci-datasets.s3.amazonaws.com/mnist
    files='
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 train-images-idx3-ubyte.gz
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c train-labels-idx1-ubyte.gz
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 t10k-images-idx3-ubyte.gz
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 t10k-labels-idx1-ubyte.gz' ;;
  fashion-mnist)
    url=http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
    files='
3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 train-images-idx3-ubyte.gz
a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 train-labels-idx1-ubyte.gz
346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 t10k-images-idx3-ubyte.gz
67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 t10k-labels-idx1-ubyte.gz' ;;
  cifar10)
    url=https://www.cs.toronto.edu/~kriz
    files='
c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd cifar-10-binary.tar.gz' ;;
  tinyshakespeare)
    url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare
    files='
86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed input.txt' ;;
  *) usage ;;
esac
[ -z "${LOCKSTEP_MIRROR:-}" ] || url=$LOCKSTEP_MIRROR/$name

# is_whole FILE SHA256
is_whole() {
  [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$2  -" ]
}

# download URL FILE: appends to what FILE holds already.
download() {
  if command -v curl >/dev/null; then
    curl --fail --location --silent --show-error --connect-timeout 20 --retry 2 \
      --continue-at - --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --tries=3 --timeout=20 --continue --output-document="$2" "$1"
  else
    fail "needs curl or wget; install one of them"
  fi
}

# download_or_fail URL FILE
download_or_fail() {
  status=0
  reason=$(download "$1" "$2" 2>&1) || status=$?
  case $status in
    0) ;;
    # The server cannot go on from FILE's end: 22, 33 and 36 of curl, 8 of wget.
    22 | 33 | 36 | 8) if [ -s "$2" ]; then return; fi ;;
  esac
  if [ $status -ne 0 ]; then
    fail "cannot download $1${reason:+ ($(echo "$reason" | tail -n 1))}"
  fi
}

# fetch SHA256 FILE
fetch() {
  if is_whole "$folder/$2" "$1"; then
    echo "$folder/$2: already there"
    return
  fi
  partial=$folder/$2.partial
  # Continues an earlier download; if that does not give the right file, starts again once.
  if [ -s "$partial" ] && ! is_whole "$partial" "$1"; then
    download_or_fail "$url/$2" "$partial"
    if ! is_whole "$partial" "$1"; then rm -f "$partial"; fi
  fi
  if [ ! -s "$partial" ]; then
    download_or_fail "$url/$2" "$partial"
  fi
  if ! is_whole "$partial" "$1"; then
    rm -f "$partial"
    fail "$url/$2 does not have the expected SHA-256 $1; nothing was kept"
  fi
  mv -f "$partial" "$folder/$2"
  echo "$folder/$2: fetched"
}

mkdir -p "$folder" 2>/dev/null || fail "cannot make the folder $folder"
echo "$files" | while read -r sha256 file; do
  [ -z "$file" ] || fetch "$sha256" "$file"
done
# CIFAR-10's files come in one archive.
if [ "$name" = cifar10 ]; then
  tar -xzf "$folder/cifar-10-binary.tar.gz" -C "$folder" || fail "cannot unpack $folder/cifar-10-binary.tar.gz"
fi
