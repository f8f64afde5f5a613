// Decides when an authority and the certificates that it signed are replaced. Pure: reads certificates and a time.
//
// A new authority is trusted before it is used, and the previous one as long as something may still show a certificate of it:
//
//   authority expires soon ──► create the next, trust both ──overlap──► renew every certificate ──overlap──► trust only the next
//
// The times are in the certificates themselves, so no other state is kept.
import { createPrivateKey, X509Certificate } from "node:crypto";
import {
  type CertificatePair,
  type CertificateRequest,
  createAuthority,
  issueCertificate,
  splitPem,
  USAGE_OIDS,
  type Validity,
} from "./x509.ts";

export interface RotationSettings {
  readonly authorityLifetimeMs: number;
  readonly certificateLifetimeMs: number;
  /** How long every program that mounts a Secret or ConfigMap may take to use its new content. */
  readonly overlapMs: number;
}
const DAY_MS = 86_400_000;
export const ROTATION: RotationSettings = {
  authorityLifetimeMs: 3 * 365 * DAY_MS,
  certificateLifetimeMs: 90 * DAY_MS,
  overlapMs: DAY_MS,
};
/** Something is renewed when this share of its lifetime is left: kube-controllers may be down for 30 days. */
const RENEWAL_SHARE = 1 / 3;
/** Clocks of nodes may be behind by this much. */
const BACKDATE_MS = 5 * 60_000;

export interface Authority {
  /** Signs new certificates. */
  readonly signing: CertificatePair;
  /** Certificates of earlier authorities that are still trusted, in PEM. */
  readonly previous: readonly string[];
}

/** All certificates to trust, in PEM. */
export const bundleOf = ({ signing, previous }: Authority): string =>
  [...splitPem(signing.certificate), ...previous].join("");

/**
 * @param stored undefined if there is none, or none that can be used
 * @param published certificates that were trusted until now; they stay trusted if `stored` was lost
 * @returns `stored` itself while it needs no replacement
 */
export function rotateAuthority(
  stored: Authority | undefined,
  published: readonly string[],
  nowMs: number,
  settings: RotationSettings = ROTATION,
): Authority {
  if (stored !== undefined) {
    const { notBeforeMs, notAfterMs } = validityOf(stored.signing.certificate);
    if (notBeforeMs <= nowMs && !isDue(notAfterMs, nowMs, settings.authorityLifetimeMs)) return stored;
  }
  const validity = validityFrom(nowMs, settings.authorityLifetimeMs);
  const earlier = stored === undefined ? published : [...splitPem(stored.signing.certificate), ...stored.previous];
  return {
    signing: createAuthority(`calico-ca@${Math.floor(nowMs / 1000)}`, validity),
    previous: earlier.filter((certificate) => isUnexpired(certificate, nowMs)),
  };
}

/** Drops previous authorities once every certificate was renewed and `overlapMs` has passed since. */
export function dropPrevious(
  authority: Authority,
  certificates: readonly (CertificatePair | undefined)[],
  nowMs: number,
  settings: RotationSettings = ROTATION,
): Authority {
  const isRenewed = (pair: CertificatePair | undefined): boolean =>
    pair !== undefined &&
    isSignedBy(pair.certificate, authority.signing.certificate) &&
    issuedAtMs(pair.certificate) + settings.overlapMs <= nowMs;
  if (authority.previous.length === 0 || !certificates.every(isRenewed)) return authority;
  return { ...authority, previous: [] };
}

/** Why a certificate must be replaced now; undefined while it can stay. */
export function replacementReason(
  pair: CertificatePair | undefined,
  request: CertificateRequest,
  authority: Authority,
  nowMs: number,
  settings: RotationSettings = ROTATION,
): string | undefined {
  if (pair === undefined) return "no usable certificate";
  const { notBeforeMs, notAfterMs } = validityOf(pair.certificate);
  if (notAfterMs <= nowMs) return "expired";
  if (notBeforeMs > nowMs) return "not yet valid";
  const trusted = splitPem(bundleOf(authority));
  if (!trusted.some((certificate) => isSignedBy(pair.certificate, certificate)))
    return "not signed by a trusted authority";
  // Until the signing authority is trusted everywhere, a certificate that works stays.
  const isEstablished = issuedAtMs(authority.signing.certificate) + settings.overlapMs <= nowMs;
  if (!isEstablished && notAfterMs - nowMs > settings.overlapMs) return undefined;
  if (!isSignedBy(pair.certificate, authority.signing.certificate)) return "signed by the previous authority";
  if (!fits(pair.certificate, request)) return "names or usages changed";
  // An authority that expires soon itself cannot give more time.
  const attainableMs = certificateValidity(authority, nowMs, settings).notAfterMs;
  if (isDue(notAfterMs, nowMs, settings.certificateLifetimeMs) && attainableMs > notAfterMs) return "expires soon";
  return undefined;
}

export const renewCertificate = (
  request: CertificateRequest,
  authority: Authority,
  nowMs: number,
  settings: RotationSettings = ROTATION,
): CertificatePair => issueCertificate(request, authority.signing, certificateValidity(authority, nowMs, settings));

/** @returns undefined if the texts are not a certificate and its key */
export function parsePair(certificate: string, key: string): CertificatePair | undefined {
  const [first] = splitPem(certificate);
  if (first === undefined) return undefined;
  try {
    return new X509Certificate(first).checkPrivateKey(createPrivateKey(key)) ? { certificate, key } : undefined;
  } catch {
    return undefined; // the reason would quote the text, which may be a key
  }
}

/** Whether the first certificate of `certificate` was signed by `authority`. */
export function isSignedBy(certificate: string, authority: string): boolean {
  try {
    const [leaf, signer] = [new X509Certificate(certificate), new X509Certificate(authority)];
    return leaf.issuer === signer.subject && leaf.verify(signer.publicKey);
  } catch {
    return false;
  }
}

export function validityOf(certificate: string): Validity {
  const { validFrom, validTo } = new X509Certificate(certificate);
  return { notBeforeMs: Date.parse(validFrom), notAfterMs: Date.parse(validTo) };
}

const issuedAtMs = (certificate: string): number => validityOf(certificate).notBeforeMs + BACKDATE_MS;

const isDue = (notAfterMs: number, nowMs: number, lifetimeMs: number): boolean =>
  notAfterMs - nowMs < lifetimeMs * RENEWAL_SHARE;

const validityFrom = (nowMs: number, lifetimeMs: number): Validity => ({
  notBeforeMs: nowMs - BACKDATE_MS,
  notAfterMs: nowMs + lifetimeMs,
});

/** No certificate outlives its authority. */
function certificateValidity({ signing }: Authority, nowMs: number, settings: RotationSettings): Validity {
  const { notBeforeMs, notAfterMs } = validityFrom(nowMs, settings.certificateLifetimeMs);
  return { notBeforeMs, notAfterMs: Math.min(notAfterMs, validityOf(signing.certificate).notAfterMs) };
}

function isUnexpired(certificate: string, nowMs: number): boolean {
  try {
    return validityOf(certificate).notAfterMs > nowMs;
  } catch {
    return false; // not a certificate
  }
}

function fits(certificate: string, { commonName, dnsNames, usages }: CertificateRequest): boolean {
  const { subject, subjectAltName = "", keyUsage = [] } = new X509Certificate(certificate);
  return (
    subject === `CN=${commonName}` &&
    subjectAltName === dnsNames.map((name) => `DNS:${name}`).join(", ") &&
    keyUsage.join() === usages.map((usage) => USAGE_OIDS[usage]).join()
  );
}
