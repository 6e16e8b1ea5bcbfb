#!/bin/sh
# The certificates of the tests: two authorities, a service and a client of each, for 100 years.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
printf 'subjectAltName = DNS:localhost, IP:127.0.0.1\n' > names.cnf
for ca in ours theirs; do
  key "$ca-ca.key"
  openssl req -x509 -new -key "$ca-ca.key" -days 36500 -subj "/CN=$ca-ca" -out "$ca-ca.pem"
  for who in service client; do
    key "$ca-$who.key"
    openssl req -new -key "$ca-$who.key" -subj "/CN=$ca-$who" -out request.csr
    openssl x509 -req -in request.csr -CA "$ca-ca.pem" -CAkey "$ca-ca.key" -CAcreateserial \
      -days 36500 -extfile names.cnf -out "$ca-$who.pem"
  done
done
rm -f names.cnf request.csr ./*.srl ./*-ca.key
