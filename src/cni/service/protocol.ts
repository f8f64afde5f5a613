// What plugin and service say to each other: a line of JSON each way, then a text as it came: the network configuration
// the runtime wrote, and what the runtime shall read. The reply's last byte is a newline that is not part of it: without
// it the reply was cut short. Each side makes sure that the other is of its own user.
//
// Once a request is sent, the plugin waits for the reply without a time limit, or reports "try again later" (code 11) when
// the connection breaks. It never repeats the request elsewhere: the service may have started it, and an overloaded or
// stopped service continues later. The service does not start a request whose plugin has disconnected (`RequestServer`),
// and undoes an ADD whose plugin has disconnected before it starts the next request for the same attachment
// (`service.ts`).
//
// While the service works it sends a space every second, before the reply. Only STATUS, which changes nothing, is given up
// after four seconds without one.
//
// The only client is `client.ts`. This file has types alone, because the plugin loads as little as it can.

/** The line before the configuration. */
export interface RequestHead {
  /** The variables of the CNI specification, and FELIX_INTERFACEPREFIX; nothing else of the environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** The line before what goes to standard output: the exit code. */
export type ReplyHead =
  | 0
  | 1
  /** Not for the service: the plugin does it by itself. */
  | { readonly declined: string };
