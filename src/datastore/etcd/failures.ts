// Converts etcd's status codes and connection errors to typed errors. The message texts matched here are part of etcd's
// API: the codes alone do not distinguish a wrong password from a malformed request.
import { AttemptFailed } from "../../lib/http/attempt-failed.ts";
import { Compacted, type DatastoreError, DatastoreFailure, Unauthorized, ValidationFailed } from "../errors.ts";

export { AttemptFailed };

/** No answer within the time of the attempt, which may have been short: any other reason is more informative. */
export class AttemptTimedOut extends AttemptFailed {}

/** The server did not answer an HTTP/2 PING: the connection is dead, although TCP has not noticed. */
export class PingTimedOut extends Error {
  override readonly name = "PingTimedOut";
  /** @param silentMs time since the last answer */
  constructor(readonly silentMs: number) {
    super(`no answer to a PING; the last answer was received ${(silentMs / 1000).toFixed(0)} s ago`);
  }
}

/** One side rejected the other's certificate: a retry has the same result. */
export class CertificateRejected extends AttemptFailed {}

/** The token is unknown, or older than the last change of etcd's users. The request was not executed: log in again. */
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

/** @param revision the requested revision; 0 = none */
export function failureOf(code: number, message: string, revision = 0): DatastoreError | AttemptFailed | TokenExpired {
  if (/invalid auth token|revision of auth store is old/.test(message)) return new TokenExpired(message); // a watch has no code
  switch (code) {
    case OUT_OF_RANGE:
      if (message.includes("compacted")) return new Compacted(String(revision));
      if (message.includes("future revision"))
        return new ValidationFailed([
          { field: "ResourceVersion", value: String(revision), reason: "is newer than the newest revision" },
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
 * Describes for operators why a connection failed. The errors of TLS libraries are about internals, and a server that
 * closes the connection gives no reason.
 * @param options.wasSent the request may have been executed
 */
export function connectionFailure(
  text: string,
  endpoint: { readonly secure: boolean; readonly host: string },
  options: { readonly wasSent: boolean; readonly cause: unknown },
): AttemptFailed {
  const plain = ADVICE.reduce((rest, advice) => rest.replace(advice, ""), text).trim();
  const failed = (reason: string) => new AttemptFailed(reason, options.wasSent, { cause: options.cause });
  const rejected = (reason: string) => new CertificateRejected(reason, false, { cause: options.cause });
  if (/ALERT_(BAD_CERTIFICATE|CERTIFICATE_REQUIRED|UNKNOWN_CA|CERTIFICATE_UNKNOWN|CERTIFICATE_EXPIRED)/i.test(plain))
    return rejected(`the server rejected the client certificate (ETCD_CERT_FILE, ETCD_KEY_FILE): ${plain}`);
  if (/altname/i.test(plain)) return rejected(`the server's certificate is not valid for ${endpoint.host}`);
  if (/verify the first certificate|self[- ]signed|issuer cert|unable to verify/i.test(plain))
    return rejected(`the server's certificate is not signed by the configured CA (ETCD_CA_CERT_FILE): ${plain}`);
  if (/certificate has expired|certificate is not yet valid/i.test(plain)) return rejected(`the server's ${plain}`);
  if (/TLS handshake failed|WRONG_VERSION_NUMBER|before secure TLS/i.test(plain))
    return failed(
      "the TLS handshake failed; check that the server uses TLS on this port and accepts the client certificate",
    );
  if (/^$|failed to connect|ECONNRESET|closed unexpectedly|connection (closed|dropped)/i.test(plain)) {
    const detail = plain === "" ? "" : ` (${plain})`;
    return failed(`the server closed the connection${detail}; it may require ${endpoint.secure ? "http" : "https"}`);
  }
  return failed(plain);
}

/** Parts of the runtime's messages that are advice for programmers; they are removed. */
const ADVICE: readonly RegExp[] = [
  /\.? For more information, pass `verbose: true`.*$/s,
  /: Unable to connect\. Is the computer able to access the url\?$/,
  / fetching "[^"]*"$/,
];
