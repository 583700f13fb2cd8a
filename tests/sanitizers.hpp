// Which sanitizers this is compiled with, in the words of g++ or of clang++.

#ifndef TILEWISE_TESTS_SANITIZERS_HPP
#define TILEWISE_TESTS_SANITIZERS_HPP

// clang's ThreadSanitizer does not let go of its operator new: nothing is counted then, and nothing fails.
#if defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define TILEWISE_TESTS_OTHER_NEW 1
#    endif
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#        define TILEWISE_TESTS_SANITIZED 1
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define TILEWISE_TESTS_SANITIZED 1
#endif

#endif
