// What etcd's status codes mean to us. The texts matched here are etcd's own and part of its API: the codes alone do
// not tell a wrong password from a malformed request.
import { AttemptFailed } from "../../lib/http/attempt-failed.ts";
import { Compacted, type DatastoreError, DatastoreFailure, Unauthorized, ValidationFailed } from "../errors.ts";

export { AttemptFailed };

/** Nothing was heard in the time there was, which may have been short: says less than any other failure. */
export class AttemptTimedOut extends AttemptFailed {}

/** The server did not answer an HTTP/2 PING: the connection is dead, although TCP has not noticed. */
export class PingTimedOut extends Error {
  override readonly name = "PingTimedOut";
  /** @param silentMs time since the last answer */
  constructor(readonly silentMs: number) {
    super(`no answer to a PING; the last answer was received ${(silentMs / 1000).toFixed(0)} s ago`);
  }
}

/** One side does not accept the other's certificate: asking again changes nothing. */
export class CertificateRefused extends AttemptFailed {}

/** The session is no longer known, or older than the last change of any account: log in again. Nothing was done. */
export class TokenExpired extends Error {
  override readonly name = "TokenExpired";
}

const INVALID_ARGUMENT = 3;
const DEADLINE_EXCEEDED = 4;
const PERMISSION_DENIED = 7;
const FAILED_PRECONDITION = 9;
const ABORTED = 10;
const OUT_OF_RANGE = 11;
const INTERNAL = 13;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;

/** @param revision what the request asked for, when it asked for one */
export function failureOf(code: number, message: string, revision = 0): DatastoreError | AttemptFailed | TokenExpired {
  if (/invalid auth token|revision of auth store is old/.test(message)) return new TokenExpired(message); // a watch has no code
  switch (code) {
    case OUT_OF_RANGE:
      if (message.includes("compacted")) return new Compacted(String(revision));
      if (message.includes("future revision"))
        return new ValidationFailed([
          { field: "ResourceVersion", value: String(revision), reason: "lies in the future" },
        ]);
      break;
    case UNAUTHENTICATED:
    case PERMISSION_DENIED:
      return new Unauthorized(message);
    case INVALID_ARGUMENT:
    case FAILED_PRECONDITION:
      if (/authentication failed|user name|permission denied|auth/i.test(message)) return new Unauthorized(message);
      break;
    case UNAVAILABLE:
    case DEADLINE_EXCEEDED:
    case ABORTED:
    case INTERNAL:
      return new AttemptFailed(message, true);
  }
  return new DatastoreFailure(message);
}

/**
 * Why a connection came to nothing, as an operator would say it: TLS libraries name their own insides, and a server that
 * hangs up says nothing at all.
 * @param wasSent whether the request may have been carried out
 */
export function connectionFailure(
  text: string,
  endpoint: { readonly secure: boolean; readonly host: string },
  options: { readonly wasSent: boolean; readonly cause: unknown },
): AttemptFailed {
  const plain = ADVICE.reduce((rest, advice) => rest.replace(advice, ""), text).trim();
  const failed = (reason: string) => new AttemptFailed(reason, options.wasSent, { cause: options.cause });
  const refused = (reason: string) => new CertificateRefused(reason, false, { cause: options.cause });
  if (/ALERT_(BAD_CERTIFICATE|CERTIFICATE_REQUIRED|UNKNOWN_CA|CERTIFICATE_UNKNOWN|CERTIFICATE_EXPIRED)/i.test(plain))
    return refused(`the server does not accept our client certificate (ETCD_CERT_FILE, ETCD_KEY_FILE): ${plain}`);
  if (/altname/i.test(plain)) return refused(`the server's certificate is not for ${endpoint.host}`);
  if (/verify the first certificate|self[- ]signed|issuer cert|unable to verify/i.test(plain))
    return refused(`the server's certificate is not of the authority we know (ETCD_CA_CERT_FILE): ${plain}`);
  if (/certificate has expired|certificate is not yet valid/i.test(plain)) return refused(`the server's ${plain}`);
  if (/TLS handshake failed|WRONG_VERSION_NUMBER|before secure TLS/i.test(plain))
    return failed(
      "the TLS handshake failed: does the server speak TLS on this port, and accept our client certificate?",
    );
  if (/^$|failed to connect|ECONNRESET|closed unexpectedly|connection (closed|dropped)/i.test(plain)) {
    const detail = plain === "" ? "" : ` (${plain})`;
    return failed(`the server hung up${detail}: does it want ${endpoint.secure ? "http" : "https"}?`);
  }
  return failed(plain);
}

/** What the runtime tells the author of a program, not its user. */
const ADVICE: readonly RegExp[] = [
  /\.? For more information, pass `verbose: true`.*$/s,
  /: Unable to connect\. Is the computer able to access the url\?$/,
  / fetching "[^"]*"$/,
];
