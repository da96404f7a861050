/* Files with keys: private, one's own, regular, of a sane size - or refused with
 * a text that names the option and the remedy, and never the contents. */
#include "testing.h"

#include "os/secret.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/cairn-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/keys", folder);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void write_secret(const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void refused(const char *file, cairn_status expected, const char *part)
{
    char        *data = NULL;
    size_t       size = 0;
    cairn_error  error = {{0}};
    cairn_status status = cairn__secret_read("--some-file", file, 64, &data, &size, &error);
    assert_int_equal(status, expected);
    assert_null(data);
    if (!strstr(error.text, part) || !strstr(error.text, "--some-file") || strstr(error.text, "s3cret"))
        fail_msg("'%s' lacks '%s', or says too much", error.text, part);
}

static void a_private_file_is_read(void **state)
{
    char       *data = NULL;
    size_t      size = 0;
    cairn_error error = {{0}};
    (void)state;
    static const mode_t modes[] = {0600, 0400, 0700};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        write_secret("s3cret\n", modes[i]);
        assert_int_equal(cairn__secret_read("--some-file", path, 64, &data, &size, &error), CAIRN_OK);
        assert_int_equal(size, 7);
        assert_string_equal(data, "s3cret\n");
        cairn__secret_free(data, size);
        assert_int_equal(unlink(path), 0);
    }
    cairn__secret_free(NULL, 0);
}

static void others_may_not_touch_it(void **state)
{
    (void)state;
    for (mode_t bit = 1; bit <= 040; bit <<= 1) {
        write_secret("s3cret", 0600 | bit);
        refused(path, CAIRN_EACCES, "chmod 600");
    }
}

static void it_must_be_a_file_of_this_user(void **state)
{
    char other[128];
    (void)state;
    refused(path, CAIRN_ENOENT, "No such file");
    refused(folder, CAIRN_EINVAL, "not a regular file");
    refused("/dev/null", CAIRN_EINVAL, "not a regular file");
    write_secret("s3cret", 0600);
    snprintf(other, sizeof other, "%s/link", folder);
    assert_int_equal(symlink(path, other), 0);
    refused(other, CAIRN_EACCES, "not a symbolic link");
    snprintf(other, sizeof other, "%s/fifo", folder);
    assert_int_equal(mkfifo(other, 0600), 0);
    refused(other, CAIRN_EINVAL, "not a regular file"); /* and does not block */
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        refused(path, CAIRN_EACCES, "belongs to user 12345");
    }
}

static void its_size_is_bounded(void **state)
{
    char text[66];
    (void)state;
    write_secret("", 0600);
    refused(path, CAIRN_EINVAL, "empty");
    memset(text, 'x', 65);
    text[65] = 0;
    write_secret(text, 0600);
    refused(path, CAIRN_EINVAL, "too large");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_private_file_is_read),
        TEST(others_may_not_touch_it),
        TEST(it_must_be_a_file_of_this_user),
        TEST(its_size_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
