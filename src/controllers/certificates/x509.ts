// Creates certificate authorities and certificates (X.509 version 3, RFC 5280) with keys on the curve P-256, which every
// TLS client of Calico accepts.
import {
  createHash,
  createPrivateKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  X509Certificate,
} from "node:crypto";
import {
  bitString,
  boolean,
  childrenOf,
  contextConstructed,
  contextPrimitive,
  integer,
  objectIdentifier,
  octetString,
  sequence,
  set,
  time,
  utf8String,
} from "./der.ts";

/** A certificate and its private key, both in PEM. */
export interface CertificatePair {
  readonly certificate: string;
  readonly key: string;
}

export interface CertificateRequest {
  readonly commonName: string;
  readonly dnsNames: readonly string[];
  readonly usages: readonly CertificateUsage[];
}
export type CertificateUsage = "server" | "client";

export interface Validity {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

const OID = {
  commonName: "2.5.4.3",
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  sha256WithRsa: "1.2.840.113549.1.1.11",
} as const;
export const USAGE_OIDS: Readonly<Record<CertificateUsage, string>> = {
  server: "1.3.6.1.5.5.7.3.1",
  client: "1.3.6.1.5.5.7.3.2",
};
const DNS_NAME = 2; // RFC 5280 section 4.2.1.6
/** Bits of the extension KeyUsage, most significant first. */
const DIGITAL_SIGNATURE = bitString(Buffer.from([0x80]), 7);
const SIGN_CERTIFICATES_AND_CRLS = bitString(Buffer.from([0x06]), 1);

/** A self-signed certificate that may sign certificates of servers and clients, but no further authorities. */
export function createAuthority(commonName: string, validity: Validity): CertificatePair {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const subject = nameOf(commonName);
  const identifier = identifierOf(publicKey);
  return {
    certificate: signed({
      issuer: subject,
      issuerKey: privateKey,
      subject,
      publicKey,
      validity,
      extensions: [
        extension(OID.basicConstraints, sequence(boolean(true), integer(Buffer.from([0]))), true),
        extension(OID.keyUsage, SIGN_CERTIFICATES_AND_CRLS, true),
        extension(OID.subjectKeyIdentifier, octetString(identifier)),
      ],
    }),
    key: pem(privateKey),
  };
}

/** A certificate with a new key, signed by `authority`. */
export function issueCertificate(
  request: CertificateRequest,
  authority: CertificatePair,
  validity: Validity,
): CertificatePair {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const issuer = partsOf(new X509Certificate(authority.certificate));
  const names = request.dnsNames.map((name) => contextPrimitive(DNS_NAME, Buffer.from(name, "latin1")));
  const usages = request.usages.map((usage) => objectIdentifier(USAGE_OIDS[usage]));
  return {
    certificate: signed({
      issuer: issuer.subject,
      issuerKey: createPrivateKey(authority.key),
      subject: nameOf(request.commonName),
      publicKey,
      validity,
      extensions: [
        extension(OID.basicConstraints, sequence(), true),
        extension(OID.keyUsage, DIGITAL_SIGNATURE, true),
        extension(OID.extendedKeyUsage, sequence(...usages)),
        extension(OID.subjectKeyIdentifier, octetString(identifierOf(publicKey))),
        ...(issuer.keyIdentifier === undefined
          ? []
          : [extension(OID.authorityKeyIdentifier, sequence(contextPrimitive(0, issuer.keyIdentifier)))]),
        ...(names.length === 0 ? [] : [extension(OID.subjectAltName, sequence(...names))]),
      ],
    }),
    key: pem(privateKey),
  };
}

/** Splits text with several PEM certificates. */
export const splitPem = (text: string): readonly string[] =>
  text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)?.map((block) => `${block}\n`) ?? [];

interface Unsigned {
  /** DER, as in the certificate of the authority: verifiers compare names byte by byte. */
  readonly issuer: Buffer;
  readonly issuerKey: KeyObject;
  readonly subject: Buffer;
  readonly publicKey: KeyObject;
  readonly validity: Validity;
  readonly extensions: readonly Buffer[];
}

function signed({ issuer, issuerKey, subject, publicKey, validity, extensions }: Unsigned): string {
  const algorithm = signatureAlgorithm(issuerKey);
  const serial = randomBytes(16);
  serial.writeUInt8((serial.readUInt8(0) & 0x7f) | 0x40, 0); // positive, and always 16 bytes
  const certificate = sequence(
    contextConstructed(0, integer(Buffer.from([2]))), // version 3
    integer(serial),
    algorithm,
    issuer,
    sequence(time(validity.notBeforeMs), time(validity.notAfterMs)),
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    contextConstructed(3, sequence(...extensions)),
  );
  const der = sequence(certificate, algorithm, bitString(sign("sha256", certificate, issuerKey)));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

/** An authority that the user supplied may have an RSA key. */
function signatureAlgorithm({ asymmetricKeyType }: KeyObject): Buffer {
  switch (asymmetricKeyType) {
    case "ec":
      return sequence(objectIdentifier(OID.ecdsaWithSha256));
    case "rsa":
      return sequence(objectIdentifier(OID.sha256WithRsa), Buffer.from([0x05, 0x00])); // NULL parameters, RFC 4055
    default:
      throw new TypeError(`the key of an authority must be EC or RSA, not ${asymmetricKeyType}`);
  }
}

const nameOf = (commonName: string): Buffer =>
  sequence(set(sequence(objectIdentifier(OID.commonName), utf8String(commonName))));

const extension = (oid: string, value: Buffer, isCritical = false): Buffer =>
  sequence(objectIdentifier(oid), ...(isCritical ? [boolean(true)] : []), octetString(value));

/** RFC 7093 section 2, method 1. */
const identifierOf = (publicKey: KeyObject): Buffer =>
  createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 20);

const pem = (key: KeyObject): string => String(key.export({ type: "pkcs8", format: "pem" }));

/** The subject of a certificate and the identifier of its key, as the certificates that it signs must repeat them. */
function partsOf(certificate: X509Certificate): {
  readonly subject: Buffer;
  readonly keyIdentifier: Buffer | undefined;
} {
  const [body = Buffer.alloc(0)] = childrenOf(certificate.raw);
  // version, serial number, algorithm, issuer, validity, subject, key, then optional fields with a context tag
  const fields = childrenOf(body);
  const subject = fields[5];
  if (subject === undefined) throw new TypeError("the certificate of the authority is not X.509 version 3");
  const [list = sequence()] = fields.slice(7).flatMap((field) => (field[0] === 0xa3 ? childrenOf(field) : []));
  const wanted = objectIdentifier(OID.subjectKeyIdentifier);
  const found = childrenOf(list).find((item) => childrenOf(item)[0]?.equals(wanted));
  // The value is an OCTET STRING in an OCTET STRING.
  const value = found === undefined ? undefined : childrenOf(found).at(-1);
  const inner = value === undefined ? undefined : childrenOf(value)[0];
  return { subject, keyIdentifier: inner?.subarray(2) };
}
