import { afterAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { createPrivateKey, generateKeyPairSync, X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { childrenOf, integer, objectIdentifier, octetString, sequence, time } from "./der.ts";
import { type CertificatePair, createAuthority, issueCertificate, splitPem } from "./x509.ts";

const DAY_MS = 86_400_000;
const now = Date.now();
const days = (count: number) => ({ notBeforeMs: now - DAY_MS, notAfterMs: now + count * DAY_MS });
const folder = mkdtempSync(join(tmpdir(), "x509-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function file(text: string): string {
  const path = join(folder, String(files++));
  writeFileSync(path, text);
  return path;
}
/** @returns what openssl prints; throws if it fails */
const openssl = (...args: readonly string[]): string =>
  execFileSync("openssl", args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
const verify = (authorities: readonly CertificatePair[], leaf: CertificatePair, purpose: string): string => {
  const bundle = file(authorities.map(({ certificate }) => certificate).join(""));
  return openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", bundle, file(leaf.certificate));
};

const server = {
  commonName: "typha-server",
  dnsNames: ["calico-typha", "calico-typha.kube-system.svc"],
  usages: ["server"],
} as const;
const client = { commonName: "typha-client", dnsNames: [], usages: ["client"] } as const;

const elements = [
  { name: "a short integer", der: integer(Buffer.from([5])), want: "020105" },
  { name: "zero", der: integer(Buffer.from([0, 0])), want: "020100" },
  { name: "an integer with its top bit set", der: integer(Buffer.from([0, 0x80])), want: "02020080" },
  { name: "an object identifier", der: objectIdentifier("1.2.840.113549.1.1.11"), want: "06092a864886f70d01010b" },
  { name: "a length of 127", der: octetString(Buffer.alloc(127)).subarray(0, 2), want: "047f" },
  { name: "a length of 128", der: octetString(Buffer.alloc(128)).subarray(0, 3), want: "048180" },
  { name: "a length of 256", der: octetString(Buffer.alloc(256)).subarray(0, 4), want: "04820100" },
  { name: "2049 as UTCTime", der: time(Date.UTC(2049, 11, 31, 23, 59, 59)), want: `170d${hex("491231235959Z")}` },
  { name: "2050 as GeneralizedTime", der: time(Date.UTC(2050, 0, 1)), want: `180f${hex("20500101000000Z")}` },
];
function hex(text: string): string {
  return Buffer.from(text).toString("hex");
}
for (const { name, der, want } of elements) test(`DER: ${name}`, () => expect(der.toString("hex")).toBe(want));

test("DER: the reader returns the elements that the writer wrote, and rejects truncated data", () => {
  const parts = [integer(Buffer.from([1])), octetString(Buffer.alloc(300)), sequence()];
  const whole = sequence(...parts);
  expect(childrenOf(whole)).toEqual(parts);
  for (const length of [1, 3, 10, whole.length - 1])
    expect(() => childrenOf(whole.subarray(0, length))).toThrow(RangeError);
});

test("openssl verifies a chain that was created here, for the usages that were requested and no others", () => {
  const authority = createAuthority("calico-ca@1", days(100));
  const [typha, node] = [issueCertificate(server, authority, days(9)), issueCertificate(client, authority, days(9))];
  expect(verify([authority], typha, "sslserver")).toContain("OK");
  expect(verify([authority], node, "sslclient")).toContain("OK");
  expect(() => verify([authority], typha, "sslclient")).toThrow();
  expect(() => verify([authority], node, "sslserver")).toThrow();
  // A certificate that was issued here cannot issue others.
  const forged = issueCertificate(server, node, days(9));
  expect(() => verify([authority, node], forged, "sslserver")).toThrow();
});

test("openssl reads every field of a certificate", () => {
  const authority = createAuthority("calico-ca@1", days(100));
  const text = openssl(
    "x509",
    "-noout",
    "-text",
    "-in",
    file(issueCertificate(server, authority, days(9)).certificate),
  );
  for (const line of [
    "Version: 3 (0x2)",
    "Signature Algorithm: ecdsa-with-SHA256",
    "Issuer: CN = calico-ca@1",
    "Subject: CN = typha-server",
    "ASN1 OID: prime256v1",
    "CA:FALSE",
    "Digital Signature",
    "TLS Web Server Authentication",
    "DNS:calico-typha, DNS:calico-typha.kube-system.svc",
  ])
    expect(text).toContain(line);
  const root = openssl("x509", "-noout", "-text", "-in", file(authority.certificate));
  for (const line of ["CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign"]) expect(root).toContain(line);
});

test("the runtime reads validity, names, usages and key as they were requested", () => {
  const authority = createAuthority("calico-ca@1", days(100));
  const validity = { notBeforeMs: Date.UTC(2026, 0, 2, 3, 4, 5), notAfterMs: Date.UTC(2051, 5, 6, 7, 8, 9) };
  const pair = issueCertificate(server, authority, validity);
  const certificate = new X509Certificate(pair.certificate);
  expect(Date.parse(certificate.validFrom)).toBe(validity.notBeforeMs);
  expect(Date.parse(certificate.validTo)).toBe(validity.notAfterMs);
  expect(certificate.subject).toBe("CN=typha-server");
  expect(certificate.subjectAltName).toBe("DNS:calico-typha, DNS:calico-typha.kube-system.svc");
  expect(certificate.keyUsage).toEqual(["1.3.6.1.5.5.7.3.1"]); // the extended usages, by the API of node:crypto
  expect(certificate.checkPrivateKey(createPrivateKey(pair.key))).toBe(true);
  expect(certificate.verify(new X509Certificate(authority.certificate).publicKey)).toBe(true);
});

test("two authorities in one bundle: each verifies the certificates that it signed, and no others", () => {
  const [old, next] = [createAuthority("calico-ca@1", days(9)), createAuthority("calico-ca@2", days(99))];
  const [before, after] = [issueCertificate(client, old, days(9)), issueCertificate(client, next, days(9))];
  for (const leaf of [before, after]) expect(verify([next, old], leaf, "sslclient")).toContain("OK");
  expect(() => verify([next], before, "sslclient")).toThrow();
  expect(() => verify([old], after, "sslclient")).toThrow();
});

test("authorities created by openssl can also sign, with EC and RSA keys, and with names that have several parts", () => {
  for (const key of [["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], ["rsa:2048"]]) {
    const [keyFile, certFile] = [file(""), file("")];
    const subject = "/O=Example/OU=Networks/CN=Company CA";
    const usage = ["-addext", "keyUsage=critical,keyCertSign"]; // `openssl verify -x509_strict` requires it
    openssl(
      "req",
      "-x509",
      "-newkey",
      ...key,
      "-nodes",
      "-keyout",
      keyFile,
      "-out",
      certFile,
      "-subj",
      subject,
      ...usage,
    );
    const authority = { certificate: readFileSync(certFile, "utf8"), key: readFileSync(keyFile, "utf8") };
    expect(verify([authority], issueCertificate(server, authority, days(9)), "sslserver")).toContain("OK");
  }
});

test("an authority whose key type cannot sign certificates is rejected with the name of the type", () => {
  const { privateKey } = generateKeyPairSync("ed25519");
  const key = String(privateKey.export({ type: "pkcs8", format: "pem" }));
  const authority = { ...createAuthority("calico-ca@1", days(9)), key };
  expect(() => issueCertificate(client, authority, days(1))).toThrow("must be EC or RSA, not ed25519");
});

test("serial numbers and keys differ from certificate to certificate", () => {
  const authority = createAuthority("calico-ca@1", days(9));
  const pairs = Array.from({ length: 20 }, () => issueCertificate(client, authority, days(1)));
  expect(new Set(pairs.map(({ certificate }) => new X509Certificate(certificate).serialNumber)).size).toBe(20);
  expect(new Set(pairs.map(({ key }) => key)).size).toBe(20);
});

test("splitPem returns each certificate of a bundle and skips other text", () => {
  const [one, two] = [createAuthority("a", days(1)), createAuthority("b", days(1))];
  expect(splitPem(`# first\n${one.certificate}\n${one.key}${two.certificate}`)).toEqual([
    one.certificate,
    two.certificate,
  ]);
  expect(splitPem("nothing")).toEqual([]);
});
