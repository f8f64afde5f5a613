// Describes the protocol between plugin and CNI service. A request is a line of JSON, followed by the network configuration
// unchanged. A reply is a line of JSON, followed by the text for standard output and a newline; a reply without this newline is
// incomplete. Each side verifies that the other runs as the same user.
//
// Once a request is sent, the plugin waits for the reply without a time limit, or reports "try again later" (code 11) when
// the connection breaks. It never repeats the request elsewhere: the service may have started it, and an overloaded or
// stopped service continues later. The service does not start a request whose plugin has disconnected (`RequestServer`),
// and undoes an ADD whose plugin has disconnected before it starts the next request for the same attachment
// (`service.ts`).
//
// During a request the service sends a space every second as a keepalive, before the reply. For STATUS only, the plugin
// gives up after four seconds without a keepalive; this is safe because STATUS changes nothing.
//
// The only client is `client.ts`. This file contains only types, so that the plugin does not load it.

/** The line before the configuration. */
export interface RequestHead {
  /** Only the variables of the CNI specification and FELIX_INTERFACEPREFIX. */
  readonly env: Readonly<Record<string, string>>;
}

/** The line before the text for standard output: the exit code. */
export type ReplyHead =
  | 0
  | 1
  /** The service does not handle the request; the plugin does the work itself. */
  | { readonly declined: string };
