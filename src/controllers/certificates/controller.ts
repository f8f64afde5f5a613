// Creates and renews certificates, and stores them where pods mount them. One authority signs all of them.
//
//   Secret calico-ca-private (authority) ──► ConfigMap of each set (certificates to trust) ──► Secret of each certificate
//
// Everything is read and compared every few seconds, so that a deleted or damaged object is replaced. Objects are written in
// the order above: nothing is signed by an authority that is not published. Keys are never logged.
import type { KubeApi } from "../../datastore/index.ts";
import { RepeatedError } from "../../lib/log/repeated-error.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { pause } from "../../lib/retry.ts";
import { CertificateObjects, type ConfigMap, isManaged, type Secret, secretText } from "./objects.ts";
import {
  type Authority,
  bundleOf,
  dropPrevious,
  isSignedBy,
  parsePair,
  renewCertificate,
  replacementReason,
  rotateAuthority,
  ROTATION,
  type RotationSettings,
  validityOf,
} from "./rotation.ts";
import { AUTHORITY_SECRET } from "./names.ts";
import { type CertificatePair, type CertificateRequest, splitPem } from "./x509.ts";

/** Certificates of programs that trust each other, and where their pods find the certificates to trust. */
export interface CertificateSet {
  readonly bundle: { readonly configMap: string; readonly key: string };
  readonly certificates: readonly StoredCertificate[];
}
export interface StoredCertificate {
  readonly secret: string;
  readonly request: CertificateRequest;
}

export interface CertificatesOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  readonly sets: readonly CertificateSet[];
  readonly log: Logger;
  readonly rotation?: RotationSettings;
  readonly now?: () => number;
  readonly checkMs?: number;
}

const CHECK_MS = 10_000;

/** A Secret that was supplied by the user, and cannot be used. */
class UnusableSecret extends Error {
  override readonly name = "UnusableSecret";
}

export class Certificates {
  readonly #options: CertificatesOptions;
  readonly #objects: CertificateObjects;
  readonly #rotation: RotationSettings;
  readonly #now: () => number;
  readonly #failure = new RepeatedError();
  /** Sentences about objects of the user, each logged once. */
  readonly #logged = new Set<string>();

  constructor(options: CertificatesOptions) {
    this.#options = options;
    this.#objects = new CertificateObjects(options.api, options.namespace);
    this.#rotation = options.rotation ?? ROTATION;
    this.#now = options.now ?? Date.now;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, checkMs = CHECK_MS } = this.#options;
    while (!signal.aborted) {
      try {
        await this.reconcile(signal);
        if (this.#failure.clear()) log.info("certificates are up to date again");
      } catch (error) {
        if (signal.aborted) return;
        const reason = describeError(error);
        if (this.#failure.shouldLog(reason)) log.error("cannot update certificates, retrying", { error: reason });
      }
      await pause(checkMs, signal);
    }
  }

  /** Reads all objects and writes those that must change. */
  async reconcile(signal: AbortSignal): Promise<void> {
    const wanted = this.#options.sets.flatMap(({ certificates }) => certificates);
    const secrets = new Map<StoredCertificate, Secret | undefined>();
    for (const certificate of wanted) secrets.set(certificate, await this.#objects.secret(certificate.secret, signal));
    const bundles = new Map<CertificateSet, ConfigMap | undefined>();
    for (const set of this.#options.sets) bundles.set(set, await this.#objects.configMap(set.bundle.configMap, signal));

    const managed = [...secrets.values()].filter((secret) => secret === undefined || isManaged(secret));
    const published = [...bundles].flatMap(([{ bundle }, map]) =>
      map !== undefined && isManaged(map) ? splitPem(map.data?.[bundle.key] ?? "") : [],
    );
    const authority = await this.#authority(managed.map(pairOf), published, signal);
    for (const [{ bundle }, map] of bundles) await this.#publish(bundle, map, authority, signal);
    for (const [certificate, secret] of secrets) await this.#renew(certificate, secret, authority, signal);
  }

  /** Returns the authority after it was stored. */
  async #authority(
    certificates: readonly (CertificatePair | undefined)[],
    published: readonly string[],
    signal: AbortSignal,
  ): Promise<Authority> {
    const secret = await this.#objects.secret(AUTHORITY_SECRET, signal);
    const pair = pairOf(secret);
    const stored: Authority | undefined =
      secret === undefined || pair === undefined
        ? undefined
        : { signing: pair, previous: splitPem(secretText(secret, "previous.crt")) };
    const nowMs = this.#now();
    if (secret !== undefined && !isManaged(secret)) {
      if (stored === undefined)
        throw new UnusableSecret(`Secret ${AUTHORITY_SECRET}: want tls.crt and the tls.key that belongs to it`);
      this.#logOnce(AUTHORITY_SECRET, "using a certificate authority that calico-ts does not manage");
      return stored;
    }
    const rotated = rotateAuthority(stored, [...new Set(published)], nowMs, this.#rotation);
    const authority = dropPrevious(rotated, certificates, nowMs, this.#rotation);
    if (authority !== stored) {
      const texts = {
        "tls.crt": authority.signing.certificate,
        "tls.key": authority.signing.key,
        ...(authority.previous.length === 0 ? {} : { "previous.crt": authority.previous.join("") }),
      };
      await this.#objects.writeSecret(AUTHORITY_SECRET, secret, texts, signal);
      const event =
        authority.signing === stored?.signing
          ? "stopped trusting the previous certificate authority"
          : "created a certificate authority";
      this.#logWritten(event, AUTHORITY_SECRET, authority.signing);
    }
    return authority;
  }

  async #publish(
    { configMap: name, key }: CertificateSet["bundle"],
    map: ConfigMap | undefined,
    authority: Authority,
    signal: AbortSignal,
  ): Promise<void> {
    const text = bundleOf(authority);
    if (map?.data?.[key] === text) return;
    if (map !== undefined && !isManaged(map)) {
      const isTrusted = splitPem(map.data?.[key] ?? "").some((one) => splitPem(text).includes(one));
      if (!isTrusted) this.#logOnce(name, "the user's certificates to trust do not include the certificate authority");
      return;
    }
    await this.#objects.writeConfigMap(name, map, { [key]: text }, signal);
    this.#options.log.info("published the certificates to trust", {
      configMap: name,
      certificates: splitPem(text).length,
    });
  }

  async #renew(
    { secret: name, request }: StoredCertificate,
    secret: Secret | undefined,
    authority: Authority,
    signal: AbortSignal,
  ): Promise<void> {
    const nowMs = this.#now();
    const pair = pairOf(secret);
    if (secret !== undefined && !isManaged(secret)) {
      const isTrusted = splitPem(bundleOf(authority)).some(
        (one) => pair !== undefined && isSignedBy(pair.certificate, one),
      );
      if (!isTrusted)
        this.#logOnce(
          name,
          "using a certificate that calico-ts does not manage; supply the certificates to trust as well",
        );
      return;
    }
    const reason = replacementReason(pair, request, authority, nowMs, this.#rotation);
    if (reason === undefined) return;
    const renewed = renewCertificate(request, authority, nowMs, this.#rotation);
    const texts = { "tls.crt": renewed.certificate, "tls.key": renewed.key };
    await this.#objects.writeSecret(name, secret, texts, signal);
    this.#logWritten("issued a certificate", name, renewed, { reason });
  }

  #logWritten(sentence: string, secret: string, { certificate }: CertificatePair, fields: object = {}): void {
    const expires = new Date(validityOf(certificate).notAfterMs).toISOString();
    this.#options.log.info(sentence, { secret, expires, ...fields });
  }

  #logOnce(object: string, sentence: string): void {
    if (this.#logged.has(`${object} ${sentence}`)) return;
    this.#logged.add(`${object} ${sentence}`);
    this.#options.log.warn(sentence, { object });
  }
}

const pairOf = (secret: Secret | undefined): CertificatePair | undefined =>
  secret === undefined ? undefined : parsePair(secretText(secret, "tls.crt"), secretText(secret, "tls.key"));
