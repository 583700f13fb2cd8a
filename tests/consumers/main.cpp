// What each of the projects here builds: the textbook's attention of two queries, two keys and two values.
// It prints "2 3" and "2.3395 3.3395".

#include <cstdio>
#include <vector>

#include <tilewise/tilewise.hpp>

int main() {
    const std::vector<float> q{1, 0, 0, 1};
    const std::vector<float> k{1, 0, 1, 1};
    const std::vector<float> v{1, 2, 3, 4};
    std::vector<float> out(4);
    tilewise::attention(tilewise::bhsd(q.data(), 1, 1, 2, 2), tilewise::bhsd(k.data(), 1, 1, 2, 2),
                        tilewise::bhsd(v.data(), 1, 1, 2, 2), tilewise::bhsd(out.data(), 1, 1, 2, 2));
    std::printf("%.5g %.5g\n%.5g %.5g\n", out[0], out[1], out[2], out[3]);
}
