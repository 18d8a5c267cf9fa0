/* Loaded into the ranks of a trial: sends their connections through a proxy, which plays a bad link between two nodes.
 *
 * LINK_PROXY is the proxy's port on the loopback.  A connection is sent there where the names of the trial's nodes are
 * LINK_PAIR; its first line is the address that was meant. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int describe(const struct sockaddr *address, char *line, size_t room)
{
    char text[INET6_ADDRSTRLEN];
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
        return snprintf(line, room, "%s %d\n", text, ntohs(four->sin_port));
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
        return snprintf(line, room, "%s %d\n", text, ntohs(six->sin6_port));
    }
    return 0;
}

int connect(int handle, const struct sockaddr *address, socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    const char *port = getenv("LINK_PROXY"), *pair = getenv("LINK_PAIR"), *nodes = getenv("ENVKIT_TRIAL_NODES");
    char line[128];
    int length = port && pair && nodes && !strcmp(pair, nodes) ? describe(address, line, sizeof line) : 0;
    int flags = fcntl(handle, F_GETFL);
    struct sockaddr_storage proxy;
    socklen_t room;
    memset(&proxy, 0, sizeof proxy);
    if (length <= 0)
        return real(handle, address, size);
    if (address->sa_family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)&proxy;
        four->sin_family = AF_INET;
        four->sin_port = htons(atoi(port));
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        room = sizeof *four;
    } else {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&proxy;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(atoi(port));
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &six->sin6_addr);
        room = sizeof *six;
    }
    fcntl(handle, F_SETFL, flags & ~O_NONBLOCK);
    if (real(handle, (struct sockaddr *)&proxy, room) || write(handle, line, length) != length)
        return -1;
    fcntl(handle, F_SETFL, flags);
    return 0;
}
